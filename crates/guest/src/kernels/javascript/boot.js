// Started by `node -e`: takes the driver from descriptor 4 and runs it in a realm of its own, so that nothing that a
// cell does to Promise, JSON or Object.prototype reaches it. What must be done in the cells' realm is handed over: only
// this text may `import`, and DOMException is made where it is first named.
{
  const fs = require('fs'),
    vm = require('vm');
  const bytes = Buffer.alloc(fs.fstatSync(4).size);
  for (let at = 0, got = 1; at < bytes.length && got > 0; at += got)
    got = fs.readSync(4, bytes, at, bytes.length - at, at);
  fs.closeSync(4);
  const [driver, show, imports, worker] = bytes.toString().split('\n// belljar: next part\n');
  const realm = vm.createContext({ __proto__: null });
  const part = (name, text) => vm.runInContext(text, realm, { filename: `belljar:${name}` });
  part(
    'driver',
    driver,
  )({
    require,
    process,
    Buffer,
    module,
    part,
    parts: { show, imports, worker },
    global: globalThis,
    Script: vm.Script,
    load: (specifier) => import(specifier),
    isException: (value) => typeof DOMException === 'function' && value instanceof DOMException,
  });
}
