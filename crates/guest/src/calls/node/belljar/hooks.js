// Lets modules import "tools", where no package of that name is there. It takes a thread of Node's, and 30 ms: only for
// those who do.
'use strict';
const { register } = require('module');

const HOOKS = `
import { readFileSync } from 'node:fs';
const ADDRESS = 'belljar:tools';
export async function resolve(specifier, context, next) {
  if (specifier !== 'tools') return next(specifier, context);
  try {
    return await next(specifier, context);
  } catch {
    return { url: ADDRESS, format: 'module', shortCircuit: true };
  }
}
export async function load(url, context, next) {
  if (url !== ADDRESS) return next(url, context);
  let names = [];
  try {
    names = Object.keys(JSON.parse(readFileSync('/tools/index.json', 'utf8')).servers);
  } catch {}
  // What an import can name has to be known before.
  names = names.filter((name) => /^[A-Za-z_$][\\w$]*$/.test(name) && name !== 'default');
  const known = ['ToolError', 'InvalidArguments', 'UnknownTool', 'PolicyDenied', 'ApprovalDenied', 'AuthRequired',
    'RateLimited', 'ToolTimeout', 'Cancelled', 'Upstream', 'BudgetExceeded', 'search', 'describe', 'parallel', 'skills'];
  const all = [...new Set([...known, ...names])];
  const source = 'import { createRequire } from "node:module";\\n'
    + 'const tools = createRequire("/belljar/node/")("./tools.js");\\nexport default tools;\\n'
    + all.map((name, at) => 'const $' + at + ' = tools[' + JSON.stringify(name) + '];\\nexport { $' + at + ' as ' + name + ' };\\n').join('');
  return { format: 'module', source, shortCircuit: true };
}`;

let done = false;
module.exports = function hook() {
  if (done || typeof register !== 'function') return;
  done = true;
  register(`data:text/javascript,${encodeURIComponent(HOOKS)}`);
};
