// What a call can fail with. The message says what to do about it.
'use strict';

class ToolError extends Error {
  constructor(message, more = {}) {
    const lines = [String(message)];
    for (const problem of more.problems ?? []) if (!lines[0].includes(problem)) lines.push(`- ${problem}`);
    if (more.signature && !lines[0].includes(more.signature)) lines.push(`Signature: ${more.signature}`);
    const suggestions = more.suggestions ?? [];
    if (suggestions.length > 0 && !suggestions.some((each) => lines[0].includes(each)))
      lines.push(`Did you mean: ${suggestions.join(', ')}`);
    super(lines.join('\n'));
    for (const [name, value] of Object.entries(more))
      if (!['type', 'message', 'stack', 'name', '__proto__', 'constructor'].includes(name)) this[name] = value;
    this.retryable = more.retryable === true;
  }
}
Object.defineProperty(ToolError.prototype, 'name', { value: 'ToolError', configurable: true, writable: true });

const NAMES = ['InvalidArguments', 'UnknownTool', 'PolicyDenied', 'ApprovalDenied', 'AuthRequired', 'RateLimited'];
NAMES.push('ToolTimeout', 'Cancelled', 'Upstream', 'BudgetExceeded');
const errors = { __proto__: null, ToolError };
for (const name of NAMES) {
  errors[name] = { [name]: class extends ToolError {} }[name];
  Object.defineProperty(errors[name].prototype, 'name', { value: name, configurable: true, writable: true });
}

// The error that an answer tells of.
function errorOf(told) {
  const { type, message, ...more } = told !== null && typeof told === 'object' ? told : { message: told };
  const kind = Object.hasOwn(errors, String(type)) ? errors[type] : ToolError;
  return new kind(message ?? 'the call failed', more);
}

module.exports = { errors, ToolError, errorOf };
