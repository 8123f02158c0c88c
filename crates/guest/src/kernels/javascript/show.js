// The JavaScript driver: how values, pictures and errors are told. Pure, but for calling what a value brings along to
// be shown; evaluated when it is first needed, in the driver's realm.
'use strict';
(function show(given) {
  const { inspect, types, Buffer, process, global, EventEmitter, Timer, isException, promised, tell } = given;
  const TEXT_MAX = 100000;
  const OTHER_TEXT_MAX = 1000000;
  const JSON_MAX = 1 << 20;
  const RESULT_JSON_MAX = 20000;
  const PICTURE_MAX = 512 << 10;
  const PICTURE_SIDE_MAX = 1568;
  const ORIGINAL_MAX = 6 << 20;

  // JSON text of plain data, or undefined if it is anything else or needs more than `budget` characters. Never calls
  // what a cell can define: getters, proxies and toJSON are refused or ignored.
  function dataText(value, budget) {
    let left = budget;
    const write = (item, depth) => {
      if (item === null || item === true || item === false) return spend(String(item));
      if (typeof item === 'number') return Number.isFinite(item) ? spend(String(item)) : undefined;
      if (typeof item === 'string') return item.length > left ? undefined : spend(JSON.stringify(item));
      if (typeof item !== 'object' || depth > 64 || types.isProxy(item)) return undefined;
      const list = Array.isArray(item);
      const parent = Reflect.getPrototypeOf(item);
      if (list ? item.length > left : parent !== null && Reflect.getPrototypeOf(parent) !== null) return undefined;
      if (!list && Object.prototype.toString.call(item) !== '[object Object]') return undefined;
      if (!list && parent !== null && parent !== global.Object.prototype && parent !== Object.prototype)
        return undefined;
      const keys = list ? null : Object.keys(item);
      const count = list ? item.length : keys.length;
      let text = list ? '[' : '{';
      for (let i = 0; i < count; i++) {
        const found = Reflect.getOwnPropertyDescriptor(item, list ? i : keys[i]);
        if (!found || !('value' in found)) return undefined;
        const part = write(found.value, depth + 1);
        if (part === undefined) return undefined;
        const key = list ? '' : spend(JSON.stringify(keys[i]) + ':');
        if (key === undefined || (i > 0 && spend(',') === undefined)) return undefined;
        text += (i > 0 ? ',' : '') + key + part;
      }
      return spend(list ? '[]' : '{}') && text + (list ? ']' : '}');
    };
    const spend = (text) => ((left -= text.length) < 0 ? undefined : text);
    try {
      return write(value, 0);
    } catch {
      return undefined;
    }
  }

  const cut = (text, max) =>
    text.length <= max ? text : `${text.slice(0, max)}\n[cut: ${text.length - max} of ${text.length} characters]`;

  const INSPECT = {
    depth: 4,
    maxArrayLength: 100,
    maxStringLength: TEXT_MAX,
    breakLength: 100,
    compact: 3,
    colors: false,
  };

  // Timers, servers, sockets, processes: a page of their inner parts says nothing.
  const isMachinery = (value) => {
    try {
      return (
        typeof value === 'object' && (value instanceof Timer || (value instanceof EventEmitter && value !== process))
      );
    } catch {
      return false;
    }
  };

  // A cell may have changed util.inspect.defaultOptions or given the value an inspector of its own that throws.
  function inspected(value) {
    for (const more of [{}, { customInspect: false }]) {
      try {
        const text = inspect(value, {
          ...INSPECT,
          ...more,
          ...(isMachinery(value) ? { depth: -1, customInspect: false } : {}),
        });
        if (typeof text === 'string') return cut(text, TEXT_MAX);
      } catch {
        // The next way is plainer.
      }
    }
    return `[a value of type ${typeof value} that cannot be shown]`;
  }

  // Type and size of a picture by its first bytes.
  function picture(bytes) {
    const ascii = (at, length) => bytes.toString('latin1', at, at + length);
    if (bytes.length < 24) return undefined;
    if (ascii(0, 8) === '\x89PNG\r\n\x1a\n')
      return { type: 'image/png', width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) };
    if (/^GIF8[79]a/.test(ascii(0, 6)))
      return { type: 'image/gif', width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
    if (ascii(0, 4) === 'RIFF' && ascii(8, 4) === 'WEBP') {
      const kind = ascii(12, 4);
      if (kind === 'VP8X' && bytes.length >= 30)
        return { type: 'image/webp', width: bytes.readUIntLE(24, 3) + 1, height: bytes.readUIntLE(27, 3) + 1 };
      if (kind === 'VP8 ' && bytes.length >= 30)
        return { type: 'image/webp', width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff };
      if (kind === 'VP8L' && bytes.length >= 25) {
        const bits = bytes.readUInt32LE(21);
        return { type: 'image/webp', width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
      }
      return undefined;
    }
    if (bytes[0] === 0xff && bytes[1] === 0xd8 && bytes[2] === 0xff) {
      for (let at = 2; at + 9 < bytes.length && bytes[at] === 0xff; at += 2 + bytes.readUInt16BE(at + 2)) {
        const marker = bytes[at + 1];
        if (marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc) {
          return { type: 'image/jpeg', width: bytes.readUInt16BE(at + 7), height: bytes.readUInt16BE(at + 5) };
        }
      }
    }
    return undefined;
  }

  function pictureBundle(bytes, found) {
    const { type, width, height } = found;
    const size = `${width} x ${height} pixels, ${bytes.length} bytes`;
    if (bytes.length <= PICTURE_MAX && Math.max(width, height) <= PICTURE_SIDE_MAX) {
      return {
        data: { [type]: quote(bytes.toString('base64')), 'text/plain': quote(`[${type}, ${size}]`) },
        extras: { width, height },
      };
    }
    const data = {
      'text/plain': quote(`[${type}, ${size}: too large to show; write it to a file, or make it smaller]`),
    };
    if (bytes.length > ORIGINAL_MAX) return { data, extras: {} };
    return { data, extras: { original: `{"mime_type":${quote(type)},"data":${quote(bytes.toString('base64'))}}` } };
  }

  const quote = (text) => JSON.stringify(text);
  const isBytes = (value) => types.isUint8Array(value);
  const view = (value) => Buffer.from(value.buffer, value.byteOffset, value.byteLength);

  // A bundle is kept as JSON texts by type, ready to be put together.
  function bundleText({ data, extras = {} }) {
    const fields = Object.keys(data).map((type) => `${quote(type)}:${data[type]}`);
    const more = Object.keys(extras).map((name) => `,${quote(name)}:${extras[name]}`);
    return `{"data":{${fields.join(',')}}${more.join('')}}`;
  }

  // What a cell gives as a bundle of its own making; undefined if nothing of it can be used.
  function ownBundle(given) {
    if (given === null || typeof given !== 'object') return undefined;
    const data = {};
    const types = Object.keys(given).slice(0, 16);
    for (const type of types) {
      const value = given[type];
      if (!/^[a-z]+\/[\w.+-]{1,100}$/i.test(type)) continue;
      if (type.endsWith('json')) {
        const text = dataText(value, JSON_MAX);
        if (text !== undefined) data[type] = text;
      } else if (isBytes(value)) {
        const found = picture(view(value));
        if (found && found.type === type) return pictureBundle(view(value), found);
      } else if (typeof value !== 'string') {
        continue;
      } else if (/^(image\/(png|jpeg|gif|webp)|application\/pdf)$/.test(type)) {
        if (value.length > ORIGINAL_MAX * 2) continue;
        const bytes = Buffer.from(value, 'base64');
        const found = picture(bytes);
        if (found && found.type === type) return pictureBundle(bytes, found);
        if (type === 'application/pdf' && bytes.length <= ORIGINAL_MAX) data[type] = quote(bytes.toString('base64'));
      } else {
        data[type] = quote(cut(value, type === 'text/plain' ? TEXT_MAX : OTHER_TEXT_MAX));
      }
    }
    return Object.keys(data).length > 0 ? { data } : undefined;
  }

  const DISPLAY = Symbol.for('Jupyter.display');

  async function bundle(value) {
    if (value !== null && (typeof value === 'object' || typeof value === 'function')) {
      try {
        if (!types.isProxy(value)) {
          if (isBytes(value)) {
            const found = picture(view(value));
            if (found) return pictureBundle(view(value), found);
          }
          if (typeof value[DISPLAY] === 'function') {
            const own = ownBundle(await value[DISPLAY]());
            if (own) return own;
          }
          if (typeof value.toHtml === 'function') {
            const html = await value.toHtml();
            if (typeof html === 'string') {
              return { data: { 'text/html': quote(cut(html, OTHER_TEXT_MAX)), 'text/plain': quote(inspected(value)) } };
            }
          }
        }
      } catch {
        // Its own way to be shown failed: the plain one is left.
      }
    }
    const data = { 'text/plain': quote(inspected(value)) };
    if (value !== null && typeof value === 'object') {
      const text = dataText(value, RESULT_JSON_MAX);
      if (text !== undefined) data['application/json'] = text;
    }
    return { data };
  }

  // Errors

  // Frames of Node and of this driver say nothing about the cell.
  const FOREIGN = '(?:node:|belljar:|\\[eval|\\[worker eval|file:.*\\[eval)';
  const FOREIGN_FRAME = new RegExp(`^\\s+at (?:async )?(?:.*\\((?:index \\d+, )?)?${FOREIGN}.*$`);
  const SAME_FRAMES = /^\s*\.\.\. \d+ lines matching cause stack trace \.\.\.$/;
  function userFrames(text) {
    const kept = text.split('\n').filter((line) => !FOREIGN_FRAME.test(line) && !SAME_FRAMES.test(line));
    return cut(kept.join('\n'), TEXT_MAX);
  }

  function read(object, key) {
    try {
      const value = object[key];
      return typeof value === 'string' ? value : undefined;
    } catch {
      return undefined;
    }
  }

  const isError = (value) => {
    try {
      return types.isNativeError(value) || isException(value);
    } catch {
      return false;
    }
  };

  function errorOf(thrown) {
    if (!isError(thrown)) {
      const text = inspected(thrown);
      return { name: 'Uncaught', value: text, traceback: `Uncaught ${text}` };
    }
    const name = read(thrown, 'name') || 'Error';
    let text;
    try {
      text = inspect(thrown, { ...INSPECT, maxStringLength: 10000, breakLength: 120 });
    } catch {
      text = read(thrown, 'stack') || `${name}: ${read(thrown, 'message')}`;
    }
    return { name: cut(name, 1000), value: cut(read(thrown, 'message') || '', TEXT_MAX), traceback: userFrames(text) };
  }

  // As Node shows it: the place, the line, a caret below it.
  function syntaxErrorOf(message, cell, code, line, column) {
    const source = code.split('\n')[line - 1] || '';
    const from = Math.max(0, column - 100);
    const caret = `${source.slice(from, from + 200)}\n${source.slice(from, column - 1).replace(/[^\t]/g, ' ')}^`;
    return {
      name: 'SyntaxError',
      value: message,
      traceback: `cell ${cell}:${line}:${column}\n${caret}\n\nSyntaxError: ${message}`,
    };
  }

  const errorText = ({ name, value, traceback }) =>
    `{"error":{"name":${quote(name)},"value":${quote(value)},"traceback":${quote(traceback)}}}`;

  // What cells call

  // Shown at once where nothing has to be awaited, so that the order is that of the calls.
  function display(value, options) {
    if (options !== null && typeof options === 'object' && options.raw) {
      const own = ownBundle(value);
      if (own) return tell(own);
    }
    const later =
      value !== null &&
      typeof value === 'object' &&
      !types.isProxy(value) &&
      !isBytes(value) &&
      (typeof value[DISPLAY] === 'function' || typeof value.toHtml === 'function');
    if (later) return promised(bundle(value).then(tell));
    const found = isBytes(value) && picture(view(value));
    if (found) return tell(pictureBundle(view(value), found));
    const data = { 'text/plain': quote(inspected(value)) };
    const text = value !== null && typeof value === 'object' ? dataText(value, RESULT_JSON_MAX) : undefined;
    if (text !== undefined) data['application/json'] = text;
    return tell({ data });
  }
  const displayText = (type) => (text) =>
    tell({ data: { [type]: quote(cut(String(text), type === 'text/plain' ? TEXT_MAX : OTHER_TEXT_MAX)) } });
  display.text = displayText('text/plain');
  display.html = displayText('text/html');
  display.svg = displayText('image/svg+xml');
  display.md = display.markdown = displayText('text/markdown');
  display.json = (value) => {
    const text = dataText(value, JSON_MAX);
    if (text === undefined) throw new global.TypeError('display.json: not plain data, or more than 1 MiB of it');
    tell({ data: { 'application/json': text, 'text/plain': quote(inspected(value)) } });
  };
  display.image = (value) => {
    const bytes = isBytes(value)
      ? view(value)
      : typeof value === 'string'
        ? Buffer.from(value.replace(/^data:[^,]*,/, ''), 'base64')
        : undefined;
    const found = bytes && picture(bytes);
    if (!found)
      throw new global.TypeError('display.image: not a PNG, JPEG, GIF or WebP picture (a Buffer, or base64 text)');
    tell(pictureBundle(bytes, found));
  };
  return { bundle, bundleText, display, errorOf, errorText, quote, read, syntaxErrorOf };
});
