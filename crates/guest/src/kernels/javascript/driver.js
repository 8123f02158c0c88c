// The JavaScript driver: the part that lives in the main thread, where the cells run.
//
// A cell is evaluated by the inspector in REPL mode, which gives the value of the last expression, lets const, let and
// class be declared again, and takes top-level await. The first `run` decides the shape: if it is also the last one,
// all happens in this thread, since a thread more would cost 20 ms. Otherwise a worker (worker.js) owns the control
// socket, since only another thread can end a loop that never yields. A termination unwinds this file's frames as well
// as the cell's, so in that shape the worker does all writing to the socket, and this side only posts whole messages.
//
// This file runs in a realm of its own: its Promise, JSON, Array are not those that a cell can change.
'use strict';
(function belljar({ require, process, Buffer, module, global, parts, part, load, isException, Script }) {
  const fs = require('fs');
  const { readSync, writeSync, statSync, readFileSync } = fs;
  const { inspect, types } = require('util');
  const path = require('path');
  const CONTROL = 3;
  const SHOWS_MAX = 64;
  const CODE_MAX = 16 << 20;
  const READ_SIZE = 16 << 10;
  const IMPORTER = '$mport'; // The transpiler writes this name: as long as `import`, so that columns stay right.
  const TRANSPILE = process.env.BELLJAR_TRANSPILE || '/belljar/transpile';
  const TOOLS = '/belljar/node/tools.js';
  const MainPromise = global.Promise,
    resolved = MainPromise.resolve,
    mainThen = MainPromise.prototype.then;
  const { setTimeout, clearTimeout, setImmediate, clearImmediate } = global;
  const emit = process.emit,
    on = process.on,
    listenerCount = process.listenerCount,
    exit = process.exit;
  const cwd = process.cwd;
  const resources = process.getActiveResourcesInfo.bind(process);
  const pid = process.pid;

  // Parts that are evaluated when they are first needed; what they use is taken now, before a cell can change it.
  const promised = (promise) => Reflect.apply(resolved, MainPromise, [promise]);
  const here = () => path.join(cwd(), 'cell.mjs');
  const timer = setTimeout(() => {}, 1);
  clearTimeout(timer);
  const Timer = Reflect.getPrototypeOf(timer).constructor;
  const { EventEmitter } = require('events');
  const tools = { inspect, types, Buffer, process, global, EventEmitter, Timer, isException, promised, tell: show };
  let showPart;
  const shown = () => (showPart ??= part('show', parts.show)(tools));
  const roads = { require, global, load, path, cwd, here, statSync, readFileSync, bare, resolveLate, transpiler: TRANSPILE, tools: TOOLS };
  let importsPart;
  const imports = () => (importsPart ??= part('imports', parts.imports)(roads));

  // The stack that a cell reads has no driver in it: what lies below the cell's own frames is left out.
  const FOREIGN_FRAME = /^\s+at (?:async )?(?:.*\()?(?:node:|belljar:|\[eval|\[worker eval|file:.*\[eval).*$/;
  function stackText(error, sites) {
    let title = 'Error';
    try {
      title = Reflect.apply(errorTitle, error, []);
    } catch {
      // Its name or message throws.
    }
    const frames = [];
    for (let i = 0; i < sites.length; i++) frames.push(`\n    at ${sites[i]}`);
    let count = frames.length;
    while (count > 0 && FOREIGN_FRAME.test(frames[count - 1].slice(1))) count -= 1;
    if (count === 0 && !/belljar:/.test(frames.join(''))) count = frames.length;
    return (
      title +
      frames
        .slice(0, count)
        .filter((frame) => !/[ (]belljar:/.test(frame))
        .join('')
        .replace(/\bcell-(\d+)(?=:\d)/g, 'cell $1')
    );
  }
  const errorTitle = global.Error.prototype.toString;
  Reflect.defineProperty(global.Error, 'prepareStackTrace', { value: stackText, writable: true, configurable: true });

  // Packages

  // `npm:` and a version say what to install, which others have done: what is left is the package's name.
  function bare(specifier) {
    const found = /^npm:\/?((?:@[^/@]+\/)?[^/@]+)(?:@[^/]*)?(\/.*)?$/.exec(specifier);
    return found ? found[1] + (found[2] || '') : specifier;
  }
  // Node remembers for ever that a package.json was not there. So it is not to look for that of a package which may still
  // come: neither for `require`, nor for an `import` that failed, which asks here what could have been meant.
  function resolveLate(Module, stat) {
    const { isBuiltin, _resolveLookupPaths: lookupPaths, _resolveFilename: resolve } = Module;
    const isAbsent = (request, folders) => {
      if (/^(?:\.{0,2}\/|\.{1,2}$|#)/.test(request) || isBuiltin(request)) return false;
      const name = /^(?:@[^/]+\/)?[^/]*/.exec(request)[0];
      for (let i = 0; i < folders.length; i++)
        for (const ending of ['', '.js', '.json', '.node'])
          if (stat(`${folders[i]}/${name}${ending}`, { throwIfNoEntry: false })) return false;
      return true;
    };
    Module._resolveFilename = function (given, parent, isMain, options) {
      if (typeof given !== 'string') return Reflect.apply(resolve, this, [given, parent, isMain, options]);
      const request = bare(given);
      const folders = options === undefined ? Reflect.apply(lookupPaths, Module, [request, parent]) : null;
      const where = folders && isAbsent(request, folders) ? { paths: [] } : options;
      // What calls tools, where no package of that name is there.
      if (request === 'tools' && where !== options) return '/belljar/node/tools.js';
      return Reflect.apply(resolve, this, [request, parent, isMain, where]);
    };
  }
  resolveLate(require('module'), statSync);

  // Evaluation

  // The inspector takes 2 ms to load, so it is used where it is needed: for cells that await, and where cells follow.
  // It speaks of values by numbers; `desk`, known to it by one, is the way from a number to the value.
  const desk = { value: undefined, wanted: undefined };
  const { prototype: mainObject } = global.Object;
  let session, sessionPost, deskId;
  function connect() {
    const { Session } = require('inspector');
    session = new Session();
    sessionPost = Session.prototype.post;
    session.connect();
    Reflect.defineProperty(global, 'belljar desk', { value: desk, configurable: true });
    post(
      'Runtime.evaluate',
      { expression: 'globalThis["belljar desk"]' },
      (_, answer) => (deskId = answer.result.objectId),
    );
    Reflect.deleteProperty(global, 'belljar desk');
    // With an inspector there, Node's console tells it of every call, which doubles the price of a line.
    for (const name of Object.keys(console)) {
      const own = console.Console && console.Console.prototype[name];
      if (typeof own !== 'function' || console[name] !== consoleMethods[name]) continue;
      const bound = own.bind(console);
      for (const key of ['name', 'length'])
        Reflect.defineProperty(bound, key, Reflect.getOwnPropertyDescriptor(console[name], key));
      console[name] = bound;
    }
  }
  function post(method, parameters, answered) {
    if (session === undefined) connect();
    // Node makes JSON of the message, an object of the cells' realm: a toJSON there is hidden for that one look.
    const found = Reflect.getOwnPropertyDescriptor(mainObject, 'toJSON');
    if (found && found.configurable) {
      const get = () => void Reflect.defineProperty(mainObject, 'toJSON', found);
      Reflect.defineProperty(mainObject, 'toJSON', { get, configurable: true });
    }
    Reflect.apply(sessionPost, session, [method, parameters, answered]);
  }
  // Arrays that Node gives are the cells': their methods may be anything.
  function copied(array) {
    const items = [];
    for (let i = 0; i < array.length; i++) items.push(array[i]);
    return items;
  }

  function valueOf(remote) {
    if (remote.objectId === undefined) {
      if (remote.unserializableValue === undefined) return remote.value;
      return remote.type === 'bigint'
        ? BigInt(remote.unserializableValue.slice(0, -1))
        : Number(remote.unserializableValue);
    }
    const call = {
      objectId: deskId,
      functionDeclaration: 'function(v){this.value=v}',
      arguments: [{ objectId: remote.objectId }],
    };
    post('Runtime.callFunctionOn', { ...call, silent: true }, () => {});
    const { value } = desk;
    desk.value = undefined;
    return value;
  }

  function numberOf(value) {
    desk.wanted = value;
    let id;
    post(
      'Runtime.callFunctionOn',
      { objectId: deskId, functionDeclaration: 'function(){return this.wanted}' },
      (_, answer) => {
        id = answer && answer.result.objectId;
      },
    );
    desk.wanted = undefined;
    return id;
  }

  let live = false; // Whether cells may follow.

  class Failure {
    constructor(error) {
      this.error = error;
    }
  }

  function transpiled(cell, code, options) {
    const { spawnSync } = require('child_process');
    const answer = spawnSync(TRANSPILE, options, {
      input: code,
      encoding: 'utf8',
      maxBuffer: CODE_MAX,
      env: {},
      timeout: 10000,
      killSignal: 'SIGKILL',
    });
    if (answer.status === 0 && !answer.error) return answer.stdout;
    if (answer.error && answer.error.code === 'ENOENT') {
      const text = `${TRANSPILE} is missing in this sandbox: no TypeScript, import or export`;
      throw new Failure({ name: 'Error', value: text, traceback: `Error: ${text}` });
    }
    const text = answer.stderr || '';
    const found = /^SyntaxError: (.*) \((\d+):(\d+)\)$/m.exec(text);
    if (found) throw new Failure(shown().syntaxErrorOf(found[1], cell, code, Number(found[2]), Number(found[3])));
    const why = answer.signal
      ? 'the code is nested too deeply'
      : text.trim().split('\n')[0] || 'the code cannot be read';
    throw new Failure({ name: 'SyntaxError', value: why, traceback: `cell ${cell}\nSyntaxError: ${why}` });
  }

  // V8 never lets a const become anything else, so where cells follow, those at the top level are declared with let.
  // Not to start a process for it, the usual case is done here: each at the start of a line, and none is assigned to.
  // Undefined if it takes the transpiler to tell.
  function loosened(code) {
    if (!/\bconst\b/.test(code)) return code;
    if (code.includes('`') || /^\s*\n*[ \t]+\S/.test(code) || /^\S.*[^\w$.]const\b/m.test(code)) return undefined;
    const names = [];
    const rest = code.replace(/^const[ \t]+([A-Za-z_$][\w$]*)[ \t]*=(?![=>])/gm, (_, name) => (names.push(name), ''));
    if (/^const\b/m.test(rest)) return undefined;
    for (const name of names) {
      const word = `(?<![\\w$.])${name.replaceAll('$', '\\$')}(?![\\w$])`;
      if (
        new RegExp(
          `(?:\\+\\+|--)\\s*${word}|${word}\\s*(?:\\+\\+|--|[-+*/%&|^?<>]*=(?![=>]))|[\\[{,]\\s*${word}\\s*[\\]},].*=`,
        ).test(rest)
      )
        return undefined;
    }
    return code.replace(/^const(?=[ \t])/gm, 'let  ');
  }

  // What the inspector can evaluate: JavaScript without import and export. `more`: options for names declared before.
  function plain(cell, language, code, more) {
    const options = live ? [language, 'live', ...more] : [language, ...more];
    if (language === 'typescript' || more.length > 0 || /\b(?:import|export)\b/.test(code))
      return transpiled(cell, code, options);
    if (!live) return code;
    const text = loosened(code);
    if (text !== undefined) return text;
    try {
      return transpiled(cell, code, options);
    } catch {
      return code; // V8 says better than the transpiler what is wrong with JavaScript.
    }
  }

  // How to declare `name` so that V8 takes it, if an earlier cell declared it in another way.
  function redeclared(name) {
    let found;
    post('Runtime.globalLexicalScopeNames', {}, (_, answer) => {
      if (answer && copied(answer.names).includes(name)) found = `let=${name}`;
    });
    return found || (Reflect.getOwnPropertyDescriptor(global, name) ? `var=${name}` : undefined);
  }

  // Calls `ended(value, failure)` when the cell's last value is known, a promise awaited; never if it stays pending.
  function evaluate(cell, language, code, ended, more = []) {
    let text;
    try {
      text = plain(cell, language, code, more);
    } catch (failure) {
      ended(undefined, failure instanceof Failure ? failure.error : shown().errorOf(failure));
      return;
    }
    const answered = (refused, answer) => {
      held.delete(cell);
      if (refused) return; // Terminated: whoever did that concludes the cell.
      const details = answer.exceptionDetails;
      if (details) {
        const thrown = details.exception ? valueOf(details.exception) : details.text;
        const syntax = details.exception && details.exception.className === 'SyntaxError';
        const message = syntax ? shown().read(thrown, 'message') || '' : '';
        const frames = syntax
          ? (shown().read(thrown, 'stack') || '').split('\n').filter((line) => /^\s+at .*cell \d/.test(line))
          : [];
        // Thrown before anything of the cell ran: by the parser, or by V8 when it declares the names, at 1:1.
        const early = frames.length === 0 || (frames.length === 1 && frames[0].endsWith(`at cell ${cell}:1:1`));
        const twice = syntax && live && early && /^Identifier '(.+)' has already been declared$/.exec(message);
        const option = twice && more.length < 16 ? redeclared(twice[1]) : undefined;
        if (option && !more.includes(option)) {
          evaluate(cell, language, code, ended, [...more, option]);
        } else if (syntax && details.scriptId !== undefined && details.url === undefined && frames.length === 0) {
          ended(
            undefined,
            shown().syntaxErrorOf(message, cell, code, details.lineNumber + 1, details.columnNumber + 1),
          );
        } else {
          ended(undefined, shown().errorOf(thrown));
        }
      } else if (answer.result.subtype === 'promise') {
        const kept = (value) => ended(value, undefined);
        Reflect.apply(mainThen, valueOf(answer.result), [kept, (thrown) => ended(undefined, shown().errorOf(thrown))]);
      } else {
        ended(valueOf(answer.result), undefined);
      }
    };
    if (!live && !/\bawait\b/.test(text)) {
      // A script does: nothing is declared twice. What it cannot parse, the inspector says better.
      let script;
      try {
        script = new Script(text, { filename: `cell-${cell}` });
      } catch {
        // Below.
      }
      if (script) {
        let value;
        try {
          value = script.runInThisContext({ displayErrors: false });
        } catch (thrown) {
          return ended(undefined, shown().errorOf(thrown));
        }
        if (!types.isPromise(value)) return ended(value, undefined);
        Reflect.apply(mainThen, value, [
          (kept) => ended(kept, undefined),
          (thrown) => ended(undefined, shown().errorOf(thrown)),
        ]);
        return undefined;
      }
    }
    const expression = `${text}\n//# sourceURL=cell-${cell}`;
    if (live) hold(cell);
    post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true, objectGroup: 'cell' }, answered);
  }

  // The promise that stands for each pending cell, by number. Were that of a stopped cell collected, the inspector
  // would say so in the midst of the collection, and Node 24 aborts at that. It is the first one made when a cell is
  // evaluated.
  const held = new Map();
  let letGo = () => {};
  function hold(cell) {
    letGo(); // A cell that could not be parsed made none.
    const { promiseHooks } = require('v8');
    if (promiseHooks === undefined) return;
    letGo = promiseHooks.onInit((promise) => {
      held.set(cell, promise);
      letGo();
      letGo = () => {};
    });
  }

  // What cells find

  function put(name, value) {
    Reflect.defineProperty(global, name, { value, writable: true, configurable: true, enumerable: false });
  }

  const importer = (specifier, _options, names, lenient) => promised(imports().imported(specifier, names, lenient));
  Reflect.defineProperty(importer, 'meta', { get: () => imports().meta });
  Reflect.defineProperty(importer, 'constant', { get: () => imports().constant });
  Reflect.defineProperty(global, IMPORTER, { value: importer });

  let shows = 0;
  let send; // Sends one record's JSON text.
  function show(made) {
    shows += 1;
    if (shows <= SHOWS_MAX) send(`{"show":${shown().bundleText(made)}}`);
  }
  function leftOut() {
    const over = shows - SHOWS_MAX;
    shows = 0;
    if (over <= 0) return;
    const text = `[${over} more were shown than the ${SHOWS_MAX} that are told]`;
    send(`{"show":{"data":{"text/plain":${shown().quote(text)}}}}`);
  }
  const get = () => (put('display', shown().display), shown().display);
  Reflect.defineProperty(global, 'display', { get, set: (value) => put('display', value), configurable: true });

  const getTools = () => (put('tools', require(TOOLS)), global.tools);
  Reflect.defineProperty(global, 'tools', { get: getTools, set: (value) => put('tools', value), configurable: true });

  // `node -e` names its text [eval]: a cell has no file, and lies in the folder it runs in.
  delete global.__filename;
  Reflect.defineProperty(global, '__dirname', { get: cwd, configurable: true, enumerable: false });
  module.filename = here();
  const mainRequire = global.require;
  mainRequire.main = module;
  // Node takes these away when its own text is over.
  const restore = () => {
    put('module', module);
    put('exports', module.exports);
    put('require', mainRequire);
  };
  let folder = cwd();
  function settle() {
    let now;
    try {
      now = cwd();
    } catch {
      return; // The folder was removed.
    }
    if (now === folder) return;
    folder = now;
    module.filename = here();
    module.paths = require('module')._nodeModulePaths(now);
  }

  // Writes to a pipe would otherwise wait in memory when it is full, and come after `done`.
  for (const name of ['stdout', 'stderr']) {
    const { get } = Reflect.getOwnPropertyDescriptor(process, name);
    let stream;
    const first = () => {
      if (stream === undefined) {
        stream = Reflect.apply(get, process, []);
        if (stream._handle && typeof stream._handle.setBlocking === 'function') stream._handle.setBlocking(true);
      }
      return stream;
    };
    Reflect.defineProperty(process, name, { get: first, configurable: true, enumerable: true });
  }

  const { console } = global;
  const consoleMethods = { ...console };

  // The input of each cell is a new one: the stream of an earlier cell has met its end.
  let inputUsed = false;
  function freshInput() {
    if (!inputUsed) return;
    inputUsed = false;
    let stream;
    const get = () => {
      inputUsed = true;
      return (stream ??= new fs.ReadStream(null, { fd: 0, autoClose: false }));
    };
    Reflect.defineProperty(process, 'stdin', { get, configurable: true, enumerable: true });
  }
  {
    const { get } = Reflect.getOwnPropertyDescriptor(process, 'stdin');
    const first = () => {
      inputUsed = true;
      return Reflect.apply(get, process, []);
    };
    Reflect.defineProperty(process, 'stdin', { get: first, configurable: true, enumerable: true });
  }

  const ours = new Set(Reflect.ownKeys(global));
  let told = '[]';
  function namesText() {
    let names = [];
    post('Runtime.globalLexicalScopeNames', {}, (_, answer) => {
      if (answer) names = copied(answer.names);
    });
    for (const key of Reflect.ownKeys(global)) if (typeof key === 'string' && !ours.has(key)) names.push(key);
    const seen = [...new Set(names)].filter((name) => !name.startsWith('_') && name.length <= 200).sort();
    const text = `[${seen.slice(0, 100).map(shown().quote).join(',')}],"count":${seen.length}`;
    if (text === told || (told === '[]' && seen.length === 0)) return undefined;
    told = text;
    return `{"names":${text}}`;
  }

  const say = (text) => {
    try {
      writeSync(2, text);
    } catch {
      // Nobody reads any more.
    }
  };

  // Control

  function write(kind, text) {
    const payload = Buffer.from(text);
    const whole = Buffer.concat([Buffer.from(`${kind} ${payload.length}\n`), payload]);
    for (let at = 0; at < whole.length;) {
      try {
        at += writeSync(CONTROL, whole, at);
      } catch (error) {
        if (error.code !== 'EAGAIN') process.reallyExit(1);
      }
    }
  }

  // The next message; ends the process at the end of the socket. What came with it is kept for whoever reads on.
  let kept = Buffer.alloc(0);
  function next() {
    const read = (bytes, from) => readSync(CONTROL, bytes, from, bytes.length - from, null) || process.reallyExit(0);
    let chunk = kept;
    while (!chunk.includes(10)) {
      const more = Buffer.alloc(READ_SIZE);
      chunk = Buffer.concat([chunk, more.subarray(0, read(more, 0))]);
    }
    const end = chunk.indexOf(10) + 1;
    const [word, size, language, last] = chunk.toString('latin1', 0, end - 1).split(' ');
    const code = Buffer.alloc(Number(size));
    let got = chunk.copy(code, 0, end);
    kept = chunk.subarray(end + got);
    while (got < code.length) got += read(code, got);
    return { word, code: code.toString(), language, last: last === '1' };
  }

  // From here on the process ends when a script's process would, and says `done` then.
  let lastState = 'off';
  function beLast(state) {
    lastState = state;
    let said = false;
    const sayDone = (code) => {
      if (said) return;
      said = true;
      write('done', String(Number(code) & 255));
    };
    let under = emit;
    const over = function (name, ...more) {
      if (name !== 'exit') return Reflect.apply(under, this, [name, ...more]);
      try {
        const any = Reflect.apply(under, this, [name, ...more]);
        let code = process.exitCode ?? more[0];
        if (lastState === 'pending' && process.exitCode === undefined) {
          say('Warning: the cell awaits something that can no longer happen\n');
          code = process.exitCode = 13;
        }
        sayDone(code);
        return any;
      } catch (error) {
        write('record', shown().errorText(shown().errorOf(error)));
        sayDone(1);
        return process.reallyExit(1);
      }
    };
    Reflect.defineProperty(process, 'emit', { get: () => over, set: (given) => (under = given), configurable: true });
    process.exit = function (code) {
      if (code !== undefined) process.exitCode = code;
      if (lastState === 'pending') lastState = 'exited';
      return Reflect.apply(exit, process, []);
    };
  }
  function lastFailed(error) {
    lastState = 'failed';
    write('record', shown().errorText(error));
    process.exitCode = 1;
    Reflect.apply(exit, process, []);
  }

  function runLast({ code, language }, cell) {
    send = (text) => write('record', text);
    beLast('pending');
    process.nextTick(restore);
    evaluate(cell, language, code, (value, error) => {
      if (error) return lastFailed(error);
      const over = () => {
        leftOut();
        lastState = 'over';
      };
      if (value === undefined) return over();
      return shown()
        .bundle(value)
        .then((made) => {
          send(`{"result":${shown().bundleText(made)}}`);
          over();
        });
    });
  }

  Reflect.apply(on, process, [
    'uncaughtException',
    function caught(thrown) {
      if (Reflect.apply(listenerCount, process, ['uncaughtException']) > 1) return; // The cell has its own way.
      const error = shown().errorOf(thrown);
      if (lastState !== 'off') lastFailed(error);
      else say(`Uncaught in a callback: ${error.traceback.replace(/^Uncaught /, '')}\n`);
    },
  ]);

  // Where the kernel waits for its first cell there is time to do once what the cell will: streams, functions and regular
  // expressions are made when they are first used, which takes longer than all the rest. Nothing of it is seen by cells.
  function warm(language) {
    for (const name of ['stdout', 'stderr']) process[name].write('');
    const nowhere = { write: () => true, on() {}, once() {}, removeListener() {}, listenerCount: () => 0 };
    new console.Console({ stdout: nowhere, stderr: nowhere }).log('%s', 1, { a: [1, 'a'] });
    connect();
    shown().bundle({ a: 1 });
    shown().bundleText({ data: {} });
    shown().errorText(shown().errorOf(new global.Error('none')));
    evaluate(0, language, language === 'typescript' ? 'undefined as undefined' : 'undefined', () => {});
  }

  let first = next();
  if (first.word === 'wait') warm(first.language);
  write('ready', String(pid));
  while (first.word !== 'run') first = next();
  if (first.last) return runLast(first, 1);
  live = true;

  // Live: the worker drives.

  // A termination in the midst of a stream's own write would leave the stream waiting for ever, and all later lines in
  // its buffer. So what cells print is written here, at once, and nothing is kept between two writes.
  const { nextTick } = process;
  const bufferFrom = Buffer.from;
  const breath = new Int32Array(new SharedArrayBuffer(4));
  function writeAll(fd, bytes) {
    for (let at = 0; at < bytes.length; ) {
      try {
        at += writeSync(fd, bytes, at);
      } catch (failure) {
        if (failure.code !== 'EAGAIN') return failure;
        Atomics.wait(breath, 0, 0, 1); // Node has made the pipe one that does not wait.
      }
    }
    return undefined;
  }
  for (const { name, fd } of [
    { name: 'stdout', fd: 1 },
    { name: 'stderr', fd: 2 },
  ]) {
    const { get } = Reflect.getOwnPropertyDescriptor(process, name);
    let stream;
    const direct = () => {
      if (stream !== undefined) return stream;
      stream = Reflect.apply(get, process, []);
      const usual = stream.write;
      stream.write = function write(chunk, encoding, done) {
        const isText = typeof chunk === 'string';
        if (!isText && !types.isUint8Array(chunk)) return Reflect.apply(usual, stream, [chunk, encoding, done]);
        const told = typeof encoding === 'function' ? encoding : done;
        const bytes = isText ? Reflect.apply(bufferFrom, Buffer, [chunk, typeof encoding === 'string' ? encoding : 'utf8']) : chunk;
        const failed = writeAll(fd, bytes);
        if (typeof told === 'function') Reflect.apply(nextTick, process, [told, failed]);
        return true;
      };
      return stream;
    };
    Reflect.defineProperty(process, name, { get: direct, configurable: true, enumerable: true });
  }

  const { Worker } = require('worker_threads');
  const { AsyncResource } = require('async_hooks');
  Reflect.apply(on, process, ['SIGINT', function interrupted() {}]); // The worker is told by the socket.
  const cancelled = new Int32Array(new SharedArrayBuffer(4)); // The worker puts the number of a cell here.
  const worker = new Worker(parts.worker, {
    eval: true,
    execArgv: [],
    workerData: { first, control: CONTROL, cancelled, kept },
  });
  const { postMessage } = Worker.prototype;
  const tell = (message) => Reflect.apply(postMessage, worker, [message]);
  send = (text) => tell({ record: text });

  let active = 0,
    since = 0;
  const probes = [setTimeout(() => {}, 1), setImmediate(() => {})];
  clearTimeout(probes[0]);
  clearImmediate(probes[1]);
  const timerKinds = probes.map((probe) => Reflect.getPrototypeOf(probe));

  // A cell that was stopped while it awaited a timer would go on when that fires: its timers go with it.
  function clearTimers() {
    const busy = copied(resources());
    for (const kind of timerKinds) {
      if (!busy.includes(kind === timerKinds[0] ? 'Timeout' : 'Immediate')) continue; // The search walks the heap.
      const prototypeObjectId = numberOf(kind);
      if (prototypeObjectId === undefined) continue;
      post('Runtime.queryObjects', { prototypeObjectId, objectGroup: 'cell' }, (_, answer) => {
        const found = answer ? valueOf(answer.objects) : [];
        for (let i = 0; i < found.length; i++) {
          for (const symbol of Object.getOwnPropertySymbols(found[i])) {
            if (symbol.description !== 'asyncId' || !(found[i][symbol] > since)) continue;
            if (kind === timerKinds[0]) clearTimeout(found[i]);
            else clearImmediate(found[i]);
          }
        }
      });
    }
    post('Runtime.releaseObjectGroup', { objectGroup: 'cell' }, () => {});
  }

  function run({ cell, code, language, last }) {
    tell({ started: cell });
    if (Atomics.load(cancelled, 0) === cell) return;
    if (cell === 1) restore();
    active = cell;
    since = new AsyncResource('belljar').asyncId();
    settle();
    freshInput();
    evaluate(cell, language, code, (value, error) => {
      if (active !== cell) return;
      const over = (result) => {
        if (active !== cell) return;
        if (result !== undefined) send(`{"result":${result}}`);
        if (error) send(shown().errorText(error));
        leftOut();
        const names = namesText();
        if (names !== undefined) send(names);
        post('Runtime.releaseObjectGroup', { objectGroup: 'cell' }, () => {});
        if (last && !error) {
          lastState = 'over';
          tell({ draining: cell });
        } else {
          active = 0;
          tell({ over: cell, code: error ? 1 : 0 });
        }
      };
      if (error || value === undefined) over(undefined);
      else
        shown()
          .bundle(value)
          .then((made) => over(shown().bundleText(made)));
    });
  }

  // Nothing can be caught, and no `finally` runs, when the worker terminates this.
  const still = new Int32Array(new SharedArrayBuffer(4));
  function stop(given) {
    const code = given === undefined ? Number(process.exitCode ?? 0) : Number(given);
    if (active === 0) say(`process.exit(${code}) in a callback, and no cell runs: the kernel stays\n`);
    tell({ exit: Number.isInteger(code) ? code & 255 : 1 });
    for (;;) Atomics.wait(still, 0, 0);
  }
  process.exit = function exit(code) {
    stop(code);
  };
  process.reallyExit = process.exit;

  worker.on('message', (message) => {
    if (message.run) run(message.run);
    else if (message.drained) {
      // All of the cell is on the socket: `done` is this thread's to write, when nothing is left to do.
      beLast('over');
      worker.unref();
    } else if (message.check) {
      const { check: cell } = message;
      tell({ checked: cell });
      if (active === cell) {
        active = 0;
        shows = 0;
        clearTimers();
      }
    }
  });
  worker.on('exit', () => lastState === 'off' && process.kill(pid, 'SIGKILL'));
});
