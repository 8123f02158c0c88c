// Runs code that is too large for an argument: takes it from descriptor 3 and closes that first.
{
  const fs = require('fs'), path = require('path'), Module = require('module');
  const code = fs.readFileSync(3, 'utf8');
  fs.closeSync(3);
  const main = new Module(path.resolve('main.js'), null);
  main.filename = main.id;
  main.paths = Module._nodeModulePaths(process.cwd());
  main._compile(code, main.filename);
}
