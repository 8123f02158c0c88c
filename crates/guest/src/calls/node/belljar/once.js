// Given to Node with `--require` for a script that names `tools`: the global of that name, and what an `import` needs.
'use strict';
const put = (value) =>
  Object.defineProperty(globalThis, 'tools', { value, writable: true, configurable: true, enumerable: false });
const get = () => {
  const tools = require('../tools.js');
  put(tools);
  return tools;
};
Object.defineProperty(globalThis, 'tools', { get, set: put, configurable: true, enumerable: false });
// The script itself is an argument, or too large for one.
if (process.execArgv.some((word) => /^--eval=/.test(word) && (/["']tools["']/.test(word) || /readFileSync\(3/.test(word))))
  require('./hooks.js')();
const Module = require('module');
const resolve = Module._resolveFilename;
Module._resolveFilename = function (request, ...rest) {
  try {
    return Reflect.apply(resolve, this, [request, ...rest]);
  } catch (error) {
    if (request !== 'tools') throw error;
    return require.resolve('../tools.js');
  }
};
