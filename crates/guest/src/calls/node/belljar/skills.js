// Programs that were kept, by their names.
'use strict';
const { ToolError } = require('./errors.js');
const { ask } = require('./wire.js');

const TRANSPILE = '/belljar/transpile';
const asked = (question) => ask({ skills: question });

const own = {
  __proto__: null,
  // Keeps a program. Its `main`, or what it exports as default, is called with the arguments.
  async save(name, code, { description = '', tools = [], language = 'javascript' } = {}) {
    const wanted = tools.map((tool) => (typeof tool === 'function' ? tool.name : tool));
    return (await asked({ save: { name, description, language, code, tools: wanted } })).saved;
  },
  async list() {
    return (await asked({ list: {} })).skills;
  },
  async remove(name) {
    return (await asked({ remove: { name } })).removed;
  },
  async run(name, given) {
    const { skill } = await asked({ get: { name } });
    if (!['javascript', 'typescript'].includes(skill.language))
      throw new ToolError(
        `the skill ${name} is written in ${skill.language}: run it in a shell, with \`tools skills run ${name}\``,
      );
    const main = await mainOf(name, skill);
    return main?.(given);
  },
};

async function mainOf(name, { code, language }) {
  const fs = require('fs');
  let text = code;
  if (language === 'typescript') {
    const done = require('child_process').spawnSync(TRANSPILE, ['module'], { input: code, encoding: 'utf8' });
    if (done.status !== 0) throw new SyntaxError(`the skill ${name}: ${done.stderr || done.error}`);
    text = done.stdout;
  }
  require('./hooks.js')();
  const folder = fs.mkdtempSync(`${require('os').tmpdir()}/skill-`);
  const file = `${folder}/main.mjs`;
  fs.writeFileSync(file, text);
  try {
    const { main, default: other } = await import(require('url').pathToFileURL(file).href);
    return [main, other].find((each) => typeof each === 'function');
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

const skills = new Proxy(own, {
  get(_, key) {
    if (typeof key !== 'string' || Object.hasOwn(own, key)) return own[key];
    return key === 'then' || key.startsWith('__') ? undefined : (given) => own.run(key, given);
  },
});
module.exports = { skills };
