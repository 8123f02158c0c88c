// Given to Node with `--import` for a script that names an `npm:` package: that is the package's name, with `import` and
// with `require`. The driver of a kernel has its own way.
import Module, { register } from 'node:module';

function bare(specifier) {
  const found = /^npm:\/?((?:@[^/@]+\/)?[^/@]+)(?:@[^/]*)?(\/.*)?$/.exec(specifier);
  return found ? found[1] + (found[2] || '') : specifier;
}
const hook = 'export const resolve = (specifier, context, next) => next(bare(specifier), context);';
register(`data:text/javascript,${encodeURIComponent(`${bare}${hook}`)}`);
const resolve = Module._resolveFilename;
Module._resolveFilename = function (request, ...rest) {
  return Reflect.apply(resolve, this, [bare(request), ...rest]);
};
