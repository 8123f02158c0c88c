// One question to process 1, and its answer: a connection, a line of JSON, and all that comes until it is hung up.
'use strict';
const { errors, errorOf } = require('./errors.js');

const SOCKET = '/home/agent/.belljar';
const QUESTION_MAX = 1 << 20;
// As many as the host answers at once, of which others may have some. The others wait here, where it costs nothing.
const MOST = 8;
const TRIES = 400;
const PAUSE_MS = 5;
let under = 0;
const waiting = [];

function converse(line, signal) {
  return new Promise((resolve, reject) => {
    const begin = () => {
      if (signal?.aborted) return reject(new errors.Cancelled('the call was given up before it was made'));
      under += 1;
      connect(line, signal, 0, (error, answer) => {
        under -= 1;
        waiting.shift()?.();
        if (error) reject(error);
        else resolve(answer);
      });
    };
    if (under < MOST) begin();
    else waiting.push(begin);
  });
}

function connect(line, signal, tries, done) {
  const parts = [];
  let over = false;
  const finish = (error, answer) => {
    if (over) return;
    over = true;
    signal?.removeEventListener('abort', abort);
    done(error, answer);
  };
  const socket = require('net').createConnection(SOCKET, () => socket.write(line));
  const abort = () => {
    socket.destroy();
    finish(new errors.Cancelled('the call was given up'));
  };
  signal?.addEventListener('abort', abort);
  socket.on('data', (part) => {
    parts.push(part);
    // It is one line: that it is hung up as well need not be waited for.
    if (part[part.length - 1] !== 10) return;
    finish(undefined, Buffer.concat(parts).toString());
    socket.destroy();
  });
  socket.on('end', () => finish(undefined, Buffer.concat(parts).toString()));
  socket.on('error', (error) => {
    if (over) return;
    // So many knock that the next one has to come again.
    if (error.code === 'EAGAIN' && tries < TRIES) {
      over = true;
      signal?.removeEventListener('abort', abort);
      setTimeout(connect, PAUSE_MS, line, signal, tries + 1, done);
    } else if (parts.length > 0) {
      finish(undefined, Buffer.concat(parts).toString());
    } else {
      finish(new errors.Upstream(`nobody answers calls in this sandbox (${error.code})`));
    }
  });
}

function lineOf(question) {
  let text;
  try {
    text = JSON.stringify(question);
  } catch (error) {
    throw new errors.InvalidArguments(`the arguments cannot be sent as JSON: ${error.message}`);
  }
  const bytes = Buffer.byteLength(text);
  if (bytes >= QUESTION_MAX)
    throw new errors.InvalidArguments(
      `the arguments are ${bytes} bytes, and a call takes ${QUESTION_MAX}: pass a path or a part of them`,
    );
  return `${text}\n`;
}

async function ask(question, signal) {
  const text = await converse(lineOf(question), signal);
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new errors.Cancelled(
      'the answer broke off: whether the call was made is not known; look before it is made again',
    );
  }
  if (answer.error !== undefined) throw errorOf(answer.error);
  if (answer.spooled === undefined) return answer;
  // Too large for an answer. The file stays, for who wants it once more.
  try {
    const value = JSON.parse(await require('fs').promises.readFile(answer.spooled, 'utf8'));
    return { value, raw: value };
  } catch (error) {
    throw new errors.Upstream(`the result is in the file ${answer.spooled}, which cannot be read: ${error.message}`);
  }
}

// A call; what fails is told where it was made, and not where its answer came.
function call(to, given, { raw, timeout, signal }, from) {
  const trace = {};
  Error.captureStackTrace(trace, from);
  return made(to, given, raw, timeout, signal).catch((error) => {
    if (error instanceof errors.ToolError) {
      const frames = String(trace.stack).split('\n').slice(1).join('\n');
      error.stack = `${error.name}: ${error.message}${frames && `\n${frames}`}`;
    }
    throw error;
  });
}

async function made(to, given = {}, raw, timeout, signal) {
  if (given === null || typeof given !== 'object' || Array.isArray(given))
    throw new errors.InvalidArguments('the arguments are one object: tool({ name: value })', to);
  const question = { call: { ...to, arguments: given, ...(raw && { raw }), ...(timeout !== undefined && { timeout }) } };
  const answer = await ask(question, signal);
  if (raw && answer.raw !== undefined) return answer.raw;
  if (!raw && 'value' in answer) return answer.value;
  throw new errors.Upstream('the answer to the call is none that this sandbox knows');
}

module.exports = { ask, call };
