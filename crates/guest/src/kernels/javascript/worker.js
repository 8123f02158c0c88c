// The JavaScript driver: the part that owns the control socket and can stop what runs in the main thread.
'use strict';
const { parentPort: main, workerData } = require('worker_threads');
const { Session } = require('inspector');
const net = require('net');

const session = new Session();
session.connectToMainThread();
const socket = new net.Socket({ fd: workerData.control, readable: true, writable: true });
const die = () => process.kill(process.pid, 'SIGKILL');

const frame = (kind, text) => {
  const payload = Buffer.from(text);
  return Buffer.concat([Buffer.from(`${kind} ${payload.length}\n`), payload]);
};

let cell = 0; // The running cell, by number; cells are counted from 1.
let running = false;
let stopping = false;
let over; // What the main thread said of the running cell's end.
let draining = false;
let started = false; // Whether the main thread has taken the running cell up.
let abandoned = false; // Whether a cell was stopped that may go on when what it awaited comes.
let count = 0;

function run({ code, language, last }) {
  cell = ++count;
  running = true;
  over = undefined;
  started = false;
  main.postMessage({ run: { cell, code, language, last } });
  if (abandoned) setTimeout(unblock, 200, cell);
}

// What an abandoned cell left may keep the main thread from the next cell: it is ended then.
async function unblock(waiting) {
  if (waiting !== cell || !running || started || stopping) return;
  await terminate();
  setTimeout(unblock, 200, waiting);
}

function conclude(code) {
  running = false;
  stopping = false;
  socket.write(frame('done', String(code)), draining ? die : undefined);
}

// Ends what the main thread executes, and answers only when the termination was used up: were it still pending, it
// would hit the next cell. The empty message gives an idle main thread something to be terminated in.
function terminate() {
  return new Promise((resolve) => {
    session.post('Runtime.terminateExecution', resolve);
    main.postMessage({});
  });
}

let checked;
async function stop(code, record) {
  if (stopping) return;
  stopping = true;
  const stopped = cell;
  Atomics.store(workerData.cancelled, 0, stopped);
  // One termination may not be the last: a callback that puts itself into a queue again and again comes back.
  for (let answered = false, tries = 0; !answered && tries < 20; tries += 1) {
    await terminate();
    answered = await new Promise((resolve) => {
      checked = () => resolve(true);
      setTimeout(resolve, 40, false);
      main.postMessage({ check: stopped });
    });
  }
  if (!running) {
    stopping = false;
  } else if (over) {
    // It came to its end meanwhile; a failure then is most often that of a process which met the same signal.
    conclude(over.code !== 0 && record ? code : over.code);
  } else {
    abandoned = true;
    if (record) socket.write(frame('record', record));
    conclude(code);
  }
}

const INTERRUPTED = JSON.stringify({
  error: { name: 'Interrupted', value: 'the cell was interrupted', traceback: 'Interrupted: the cell was interrupted' },
});

main.on('message', (message) => {
  if (message.record !== undefined) {
    if (running) socket.write(frame('record', message.record));
  } else if (message.over !== undefined) {
    if (message.over !== cell) return;
    over = message;
    if (!stopping) conclude(message.code);
  } else if (message.exit !== undefined) {
    stop(message.exit, undefined);
  } else if (message.draining !== undefined) {
    draining = true;
    socket.write('', () => main.postMessage({ drained: true }));
  } else if (message.started !== undefined) {
    started = true;
  } else if (message.checked !== undefined) {
    checked();
  }
});

let kept = Buffer.alloc(0);
function take(bytes) {
  kept = kept.length === 0 ? bytes : Buffer.concat([kept, bytes]);
  for (;;) {
    const end = kept.indexOf(10);
    if (end < 0) return;
    const [word, size, language, last] = kept.toString('latin1', 0, end).split(' ');
    const length = word === 'run' ? Number(size) : 0;
    if (kept.length < end + 1 + length) return;
    const code = kept.toString('utf8', end + 1, end + 1 + length);
    kept = kept.subarray(end + 1 + length);
    if (word === 'run') run({ code, language, last: last === '1' });
    else if (word === 'interrupt' && running) stop(130, INTERRUPTED);
  }
}
socket.on('data', take);
socket.on('end', die);
socket.on('error', die);
run(workerData.first);
take(Buffer.from(workerData.kept));
