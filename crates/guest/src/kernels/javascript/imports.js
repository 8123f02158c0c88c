// The JavaScript driver: what `import` becomes. Evaluated when a cell first imports, in the driver's realm.
'use strict';
(function imports({ require, global, load, path, cwd, here, statSync, readFileSync, bare, resolveLate, transpiler, tools }) {
  // The file that a path in an import means; TypeScript leaves the ending out, or writes that of the result.
  const ENDINGS = ['.ts', '.mts', '.js', '.mjs', '.cjs', '.json', '/index.ts', '/index.js', '/index.mjs'];
  function fileOf(given) {
    const isFile = (file) => statSync(file, { throwIfNoEntry: false })?.isFile();
    if (isFile(given)) return given;
    const tries = ENDINGS.map((ending) => given + ending);
    if (/\.m?js$/.test(given)) tries.unshift(given.replace(/js$/, 'ts'));
    return tries.find(isFile) || given;
  }

  const importedAt = new Map();
  function specifierOf(given) {
    const specifier = bare(String(given));
    const isPath = /^(?:\.{0,2}\/|\.{1,2}$)/.test(specifier);
    if (!isPath && !specifier.startsWith('file:')) return specifier;
    const { pathToFileURL, fileURLToPath } = require('url');
    const [plainPath, query] = specifier.split(/(?=[?#])/);
    const file = fileOf(isPath ? path.resolve(cwd(), plainPath) : fileURLToPath(plainPath));
    const address = pathToFileURL(file).href;
    if (query) return address + query;
    // Node keeps a module for ever; a file that was changed since is another module.
    const stat = statSync(file, { throwIfNoEntry: false });
    if (!stat || !importedAt.has(file)) {
      if (stat) importedAt.set(file, stat.mtimeMs);
      return address;
    }
    return importedAt.get(file) === stat.mtimeMs ? address : `${address}?changed=${stat.mtimeMs}`;
  }

  // Whether a file needs the hooks below: it is TypeScript, or names an `npm:` package, or a file that it imports does.
  // One that imports "tools" has hooks of its own.
  function needsHooks(file, seen = new Set()) {
    if (seen.has(file) || seen.size > 200 || !/\.m?[jt]s$/.test(file)) return false;
    seen.add(file);
    let text;
    try {
      text = readFileSync(file, 'utf8');
    } catch {
      return false; // Node says it better.
    }
    if (/['"]tools['"]/.test(text)) require(`${path.dirname(tools)}/belljar/hooks.js`)();
    if (/\.m?ts$/.test(file) || /['"]npm:/.test(text)) return true;
    const others = text.matchAll(/['"](\.{1,2}\/[^'"\n]+)['"]/g);
    return [...others].some(([, other]) => needsHooks(path.resolve(path.dirname(file), other), seen));
  }

  // Lets Node load such files, once one is imported. The hooks run in a thread of Node's.
  let hooked = false;
  function addHooks() {
    if (hooked) return;
    hooked = true;
    const { register } = require('module');
    if (typeof register !== 'function') return;
    const hooks = `
      import { spawnSync } from 'node:child_process';
      import { readFileSync, statSync } from 'node:fs';
      import Module from 'node:module';
      import { fileURLToPath } from 'node:url';
      const ENDINGS = ${JSON.stringify(ENDINGS)};
      ${fileOf}
      ${bare}
      ${resolveLate}
      resolveLate(Module, statSync);
      export async function resolve(given, context, next) {
        const specifier = bare(given);
        if (/^\\.{1,2}\\//.test(specifier) && /\\.m?ts(?:\\?|$)/.test(context.parentURL || '')) {
          const file = fileOf(fileURLToPath(new URL(specifier, context.parentURL)));
          return next(new URL('file://' + encodeURI(file)).href, context);
        }
        return next(specifier, context);
      }
      export async function load(url, context, next) {
        if (!/^file:.*\\.m?ts(?:\\?|$)/.test(url)) return next(url, context);
        const file = fileURLToPath(url.split('?')[0]);
        const options = { input: readFileSync(file), encoding: 'utf8', maxBuffer: 1 << 24 };
        const done = spawnSync(${JSON.stringify(transpiler)}, ['module'], options);
        const why = done.stderr || String(done.error || 'cannot be read');
        if (done.status !== 0) throw new SyntaxError(file + ': ' + why.trim());
        return { format: 'module', source: done.stdout, shortCircuit: true };
      }`;
    register(`data:text/javascript,${encodeURIComponent(hooks)}`);
  }

  async function namespaceOf(given) {
    const specifier = specifierOf(given);
    if (specifier === 'tools' && require('module').createRequire(here()).resolve('tools') === tools) return require(tools);
    if (specifier.startsWith('file:') && /\.json(?:[?#]|$)/.test(specifier)) {
      const file = require('url').fileURLToPath(specifier.split(/[?#]/)[0]);
      return { __proto__: null, default: global.JSON.parse(readFileSync(file, 'utf8')) };
    }
    if (!hooked && specifier.startsWith('file:') && needsHooks(require('url').fileURLToPath(specifier.split(/[?#]/)[0])))
      addHooks();
    return load(specifier);
  }

  // What `import` becomes. `names` are those that a static import asks for; `lenient`: one may be that of a type.
  async function imported(specifier, names, lenient) {
    const space = await namespaceOf(specifier);
    if (!names || names.every((name) => name in space)) return space;
    // CommonJS: Node finds by reading which names a module exports, and misses some.
    const rest = space.default;
    const whole = { __proto__: null };
    for (const name of names) {
      if (name in space) whole[name] = space[name];
      else if (rest !== null && (typeof rest === 'object' || typeof rest === 'function') && name in rest)
        whole[name] = rest[name];
      else if (!lenient)
        throw new global.SyntaxError(`The requested module '${specifier}' does not provide an export named '${name}'`);
    }
    return whole;
  }
  // What assigns to a constant that the transpiler declared with let assigns to this.
  const refuse = () => {
    const wrong = new global.TypeError('Assignment to constant variable.');
    global.Error.captureStackTrace?.(wrong, refuse);
    throw wrong;
  };
  const constant = new Proxy({}, { set: refuse });
  const meta = {
    get url() {
      return require('url').pathToFileURL(here()).href;
    },
    get filename() {
      return here();
    },
    get dirname() {
      return cwd();
    },
    main: true,
    resolve(specifier) {
      const address = specifierOf(specifier);
      if (address !== bare(String(specifier)) || address.startsWith('file:')) return address;
      const found = require('module').createRequire(here()).resolve(address);
      return path.isAbsolute(found) ? require('url').pathToFileURL(found).href : `node:${found.replace(/^node:/, '')}`;
    },
  };

  return { constant, imported, meta };
});
