// QuickJS as code expects JavaScript to be: console, timers, process, a little of fs, tools; and what the worker asks of it.
// All of it is made of one function of the worker's, which takes and gives text.
(function (host) {
  'use strict';
  delete globalThis.belljarHost;
  const { stringify, parse } = JSON;
  const TEXT_MAX = 100000;
  const call = (...given) => {
    const answer = host(...given.map(String));
    if (answer[0] === '0') return answer.slice(1);
    const [code, ...words] = answer.slice(1).split(' ');
    throw Object.assign(new Error(`${code}: ${words.join(' ')}`), { code });
  };

  // How values are shown.
  const inspect = (value, depth = 0, seen = []) => {
    if (typeof value === 'string') return depth === 0 ? value : stringify(value).replace(/^"(.*)"$/s, (_, text) => `'${text.replaceAll('\\"', '"')}'`);
    if (typeof value === 'bigint') return `${value}n`;
    if (typeof value === 'symbol' || typeof value !== 'object' && typeof value !== 'function' || value === null) return Object.is(value, -0) ? '-0' : String(value);
    if (typeof value === 'function') return /^class\b/.test(Function.prototype.toString.call(value)) ? `[class ${value.name || '(anonymous)'}]` : `[Function${value.name ? `: ${value.name}` : ' (anonymous)'}]`;
    if (seen.includes(value)) return '[Circular *1]';
    if (value instanceof Error) return `${value.name}: ${value.message}${value.stack ? `\n${String(value.stack).trimEnd()}` : ''}`;
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (value instanceof Promise) return 'Promise { <pending> }';
    if (depth > 3) return Array.isArray(value) ? '[Array]' : '[Object]';
    const inner = [...seen, value];
    const each = (item) => inspect(item, depth + 1, inner);
    const lines = (open, parts, close) => {
      if (parts.length === 0) return open + close;
      const whole = `${open} ${parts.join(', ')} ${close}`;
      return whole.length <= 76 && !whole.includes('\n') ? whole : `${open}\n${parts.map((part) => `  ${part.replaceAll('\n', '\n  ')}`).join(',\n')}\n${close}`;
    };
    const more = (list) => (list.length > 100 ? [...list.slice(0, 100).map(each), `... ${list.length - 100} more items`] : list.map(each));
    if (Array.isArray(value)) return lines('[', more(value), ']');
    if (value instanceof Map) return lines(`Map(${value.size}) {`, [...value].slice(0, 100).map(([key, item]) => `${each(key)} => ${each(item)}`), '}');
    if (value instanceof Set) return lines(`Set(${value.size}) {`, more([...value]), '}');
    if (ArrayBuffer.isView(value) && 'length' in value) return lines(`${value.constructor.name}(${value.length}) [`, more([...value]), ']');
    const name = value.constructor?.name;
    const keys = Object.keys(value);
    const of = (key) => `${/^[A-Za-z_$][\w$]*$/.test(key) ? key : inspect(key, 1)}: ${each(value[key])}`;
    const parts = keys.slice(0, 100).map(of);
    if (keys.length > 100) parts.push(`... ${keys.length - 100} more`);
    return lines(`${name && name !== 'Object' ? `${name} ` : ''}{`, parts, '}');
  };
  const cut = (text) => (text.length <= TEXT_MAX ? text : `${text.slice(0, TEXT_MAX)}\n[cut: ${text.length - TEXT_MAX} of ${text.length} characters]`);
  const format = (given) => {
    if (typeof given[0] !== 'string' || !given[0].includes('%')) return given.map((each) => inspect(each)).join(' ');
    let next = 1;
    const text = given[0].replace(/%([sdifjoO%])/g, (whole, kind) => {
      if (kind === '%') return '%';
      if (next >= given.length) return whole;
      const value = given[next++];
      if (kind === 's') return typeof value === 'string' ? value : inspect(value, 1);
      if (kind === 'j') return stringify(value);
      if (kind === 'i') return String(Number.parseInt(value, 10));
      return kind === 'd' || kind === 'f' ? String(Number(value)) : inspect(value, 1);
    });
    return [text, ...given.slice(next).map((each) => inspect(each))].join(' ');
  };
  const print = (to) => (...given) => void call(to, `${format(given)}\n`);
  globalThis.console = { log: print('out'), info: print('out'), debug: print('out'), dir: print('out'), error: print('err'), warn: print('err'), trace: print('err'), table: print('out'), assert: (holds, ...given) => holds || print('err')('Assertion failed', ...given), group() {}, groupEnd() {}, time() {}, timeEnd() {} };

  // Timers: the worker waits, and asks for the next.
  const timers = new Map();
  let numbers = 0;
  const add = (repeats) => (made, wait = 0, ...given) => {
    const every = Math.max(1, Number(wait) || 0);
    timers.set(++numbers, { at: Date.now() + every, made, given, every: repeats ? every : 0 });
    return numbers;
  };
  globalThis.setTimeout = add(false);
  globalThis.setInterval = add(true);
  globalThis.setImmediate = (made, ...given) => setTimeout(made, 0, ...given);
  globalThis.clearTimeout = globalThis.clearInterval = globalThis.clearImmediate = (number) => void timers.delete(number);
  globalThis.queueMicrotask ??= (made) => void Promise.resolve().then(made);
  globalThis.global = globalThis;
  globalThis.structuredClone ??= (value) => parse(stringify(value));

  const fs = {
    readFileSync: (path, how) => (path === 0 || path === '/dev/stdin' ? call('stdin') : call('read', path)),
    writeFileSync: (path, text) => void call('write', path, text),
    appendFileSync: (path, text) => void call('append', path, text),
    existsSync(path) {
      try {
        call('list', path);
        return true;
      } catch (error) {
        return error.code === 'ENOTDIR';
      }
    },
    readdirSync: (path) => parse(call('list', path)),
    mkdirSync: (path) => void call('mkdir', path),
    unlinkSync: (path) => void call('remove', path),
    rmSync: (path) => void call('remove', path),
  };
  fs.promises = Object.fromEntries(Object.entries(fs).map(([name, made]) => [name.replace(/Sync$/, ''), async (...given) => made(...given)]));
  globalThis.process = {
    env: parse(call('env')), argv: ['node', 'main.js'], platform: 'wasi', version: 'quickjs', versions: {}, pid: 1,
    exit: (code = 0) => void call('exit', code | 0), cwd: () => '/workspace', on() {}, nextTick: (made, ...given) => queueMicrotask(() => made(...given)),
    stdout: { write: (text) => (call('out', text), true) }, stderr: { write: (text) => (call('err', text), true) },
    hrtime: Object.assign(() => [Math.floor(Date.now() / 1000), 0], { bigint: () => BigInt(Date.now()) * 1000000n }),
  };

  // The tools of other servers.
  const ask = (question) => {
    const answer = parse(call('ask', `${stringify(question)}\n`));
    if (answer.error !== undefined) throw Object.assign(new Error(answer.error.message ?? stringify(answer.error)), { name: answer.error.kind ?? 'ToolError', ...answer.error });
    if (answer.spooled === undefined) return answer;
    const value = parse(fs.readFileSync(answer.spooled));
    return { value, raw: value };
  };
  const toolOf = (to) => {
    const made = async (given = {}) => ask({ call: { ...to, arguments: given } }).value;
    made.raw = async (given = {}) => ask({ call: { ...to, arguments: given, raw: true } }).raw;
    return made;
  };
  const NOBODYS = new Set(['then', 'catch', 'finally', 'toJSON', 'constructor', 'prototype', 'valueOf', 'toString']);
  const named = (target, make) => new Proxy(target, { get: (_, key) => (typeof key !== 'string' || key in target || NOBODYS.has(key) ? target[key] : (target[key] = make(key))) });
  const tools = named({ search: async (query, options) => ask({ search: { query, language: 'typescript', ...options } }).text, describe: async (name) => ask({ describe: { name, language: 'typescript' } }).text }, (server) => named({}, (tool) => toolOf({ server, tool })));
  tools.default = tools;
  globalThis.tools ??= tools;
  globalThis.callTool = async (name, given) => toolOf({ name })(given);

  const modules = { fs, 'fs/promises': fs.promises, tools, process: globalThis.process, util: { inspect: (value) => inspect(value, 1) }, timers: globalThis };
  globalThis.require = (name) => {
    const found = modules[name.replace(/^node:/, '')];
    if (!found) throw Object.assign(new Error(`Cannot find module '${name}': the wasm wall has ${Object.keys(modules).join(', ')}, and no packages`), { code: 'MODULE_NOT_FOUND' });
    return found;
  };
  globalThis.$mport = async (name) => {
    const found = globalThis.require(name);
    return found.default ? found : { default: found, ...found };
  };

  // What becomes of a cell, for the worker.
  let state;
  const told = (kind, text) => call('record', `{"${kind}":${text}}`);
  const explain = (error) => {
    const real = error !== null && typeof error === 'object';
    const name = String((real && error.name) || 'Error');
    const value = real && error instanceof Error ? String(error.message) : inspect(error, 1);
    const frames = real && error.stack ? `\n${String(error.stack).split('\n').filter((line) => !line.includes('<belljar')).join('\n').trimEnd()}` : '';
    return { name, value: cut(value), traceback: cut(`${name}: ${value}${frames}`) };
  };
  const fail = (error) => {
    state.code = 1;
    const told_ = explain(error);
    if (state.isProgram) call('err', `${told_.traceback}\n`);
    else told('error', stringify(told_));
  };
  globalThis.belljar = {
    begin(isProgram) {
      state = { isProgram: isProgram === 'program', over: false, code: 0 };
    },
    failed(error) {
      state.over = true;
      fail(error);
    },
    watch(promise) {
      const done = (value) => {
        state.over = true;
        // The promise of an evaluation has an object with the value.
        const last = value !== null && typeof value === 'object' && Object.keys(value).length === 1 && 'value' in value ? value.value : value;
        if (last !== undefined && !state.isProgram) {
          globalThis._ = last;
          told('result', stringify({ data: { 'text/plain': cut(inspect(last, 1)) } }));
        }
      };
      promise.then(done, (error) => {
        state.over = true;
        fail(error);
      });
    },
    // Milliseconds to wait for, or -1 when it is over, or -2 when nothing can happen any more.
    tick(isLast) {
      if (state.over && (isLast !== 'last' || timers.size === 0 || state.code !== 0)) return -1;
      let first;
      for (const [number, timer] of timers) if (first === undefined || timer.at < timers.get(first).at) first = number;
      if (first === undefined) return -2;
      const timer = timers.get(first);
      const wait = timer.at - Date.now();
      if (wait > 0) return wait;
      if (timer.every > 0) timer.at = Date.now() + timer.every;
      else timers.delete(first);
      try {
        timer.made(...timer.given);
      } catch (error) {
        fail(error);
        state.over = true;
      }
      return 0;
    },
    code: () => state.code,
    interrupted() {
      timers.clear();
      state.over = true;
      fail(Object.assign(new Error('the code was interrupted'), { name: 'Interrupted', stack: '' }));
      state.code = 130;
    },
  };
  const entrance = globalThis.belljar;
  delete globalThis.belljar;
  return entrance;
})(belljarHost);
