// The tools of other servers: `import { github } from "tools"; await github.list_issues({ owner })`. See /tools/README.md.
'use strict';
const { errors } = require('./belljar/errors.js');
const { call, ask } = require('./belljar/wire.js');
const { readFileSync } = require('fs');

const PLACE = '/tools';
const show = Symbol.for('nodejs.util.inspect.custom');
// What is asked of any object, and is no name of a server or tool.
const NOBODYS = new Set(['then', 'catch', 'finally', 'toJSON', 'constructor', 'prototype', 'valueOf', 'toString', 'nodeType']);
const isName = (key) => typeof key === 'string' && !key.startsWith('__') && !NOBODYS.has(key);
const same = (name) => name.replace(/[^\p{L}\p{N}]/gu, '').toLowerCase();

function index() {
  try {
    const { servers } = JSON.parse(readFileSync(`${PLACE}/index.json`, 'utf8'));
    return servers !== null && typeof servers === 'object' ? servers : {};
  } catch {
    return {}; // There are none, or the host knows better.
  }
}

// The name that its owner has for it: that of an identifier, or of another spelling that only one has.
function spelled(members, name) {
  if (Object.hasOwn(members, name)) return members[name].name ?? name;
  const all = Object.entries(members);
  if (all.some(([, each]) => each.name === name)) return name;
  const alike = all.filter(([ident, each]) => [same(ident), same(String(each.name))].includes(same(name)));
  return alike.length === 1 ? alike[0][1].name : name;
}

// A name that is not known goes to the host as it is, which knows more, or says what may have been meant.
function named(target, make, hint) {
  target[show] = hint;
  return new Proxy(target, {
    get(_, key) {
      if (!Object.hasOwn(target, key)) {
        if (!isName(key)) return undefined;
        target[key] = make(key);
      }
      return target[key];
    },
    has: (_, key) => Object.hasOwn(target, key) || isName(key),
  });
}

function toolOf(server, tool, path) {
  const made = (given, options) => call({ server, tool }, given, { ...options, raw: false }, made);
  made.raw = (given, options) => call({ server, tool }, given, { ...options, raw: true }, made.raw);
  Object.defineProperty(made, 'name', { value: path });
  return made;
}

function serverOf(ident, name, members) {
  const target = { __proto__: null };
  const make = (tool) => toolOf(name, spelled(members, tool), `${ident}.${tool}`);
  for (const tool of Object.keys(members)) if (isName(tool)) target[tool] = make(tool);
  return named(target, make, () => `[server ${name}: ${Object.keys(members).slice(0, 50).join(', ')}]`);
}

const pathOf = (tool) => (typeof tool === 'function' ? tool.name : String(tool));
const { search, describe, parallel } = {
  // What is there for a purpose, as text.
  async search(query, { detail = 'signatures', server, limit = 10 } = {}) {
    return (await ask({ search: { query, detail, server, limit, language: 'typescript' } })).text;
  },
  // All of a tool, as text.
  async describe(tool) {
    return (await ask({ describe: { name: pathOf(tool), language: 'typescript' } })).text;
  },
  // parallel(fn, [args, ...]) or parallel([fn, ...]): the values in order. With errors: "return" those that failed are in
  // their places, else the first is thrown, and nothing further is begun.
  async parallel(given, list, options) {
    const todo = typeof given === 'function' ? list.map((item) => () => given(item)) : [...given];
    const { max = 8, errors: way = 'raise' } = (typeof given === 'function' ? options : list) ?? {};
    const values = [];
    const failed = [];
    let next = 0;
    const work = async () => {
      while (next < todo.length && (way === 'return' || failed.length === 0)) {
        const at = next++;
        try {
          values[at] = await todo[at]();
        } catch (error) {
          values[at] = error;
          failed.push(at);
        }
      }
    };
    await Promise.all(Array.from({ length: Math.max(1, Math.min(max, 16, todo.length)) }, work));
    if (failed.length > 0 && way !== 'return') throw values[Math.min(...failed)];
    return values;
  },
};

const servers = index();
const root = { __proto__: null, search, describe, parallel, ...errors };
for (const [ident, { name, tools }] of Object.entries(servers))
  if (isName(ident) && !Object.hasOwn(root, ident)) root[ident] = serverOf(ident, name ?? ident, tools ?? {});
const make = (given) => {
  const name = spelled(servers, given);
  const found = Object.entries(servers).find(([, each]) => each.name === name);
  return found ? root[found[0]] ?? serverOf(found[0], name, found[1].tools ?? {}) : serverOf(given, name, {});
};
const tools = named(root, make, () => `[tools of ${Object.keys(servers).join(', ') || 'no server'}]`);
Object.defineProperty(root, 'skills', { get: () => require('./belljar/skills.js').skills, configurable: true });
Object.defineProperty(root, 'default', { value: tools, configurable: true });
Object.defineProperty(root, '__esModule', { value: true });
module.exports = tools;
