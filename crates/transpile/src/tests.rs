//! What each form becomes, and that lines stay where they are.

use crate::transpile::{Options, transpile};

fn run(options: &str, source: &str) -> Result<String, String> {
    let options = Options::parse(options.split(' ').map(str::to_owned)).unwrap();
    transpile(source, &options).map_err(|error| error.to_string())
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn becomes(options: &str, source: &str, expected: &str) {
    let code = run(options, source).unwrap();
    assert_eq!(squeezed(&code), squeezed(expected), "from {source}");
    assert_eq!(code.matches('\n').count(), source.matches('\n').count(), "lines of {source}");
}

#[track_caller]
fn ts(source: &str, expected: &str) {
    becomes("typescript", source, expected);
}

#[track_caller]
fn fails(options: &str, source: &str, expected: &str) {
    assert_eq!(run(options, source).unwrap_err(), expected);
}

#[test]
fn types_become_spaces_of_the_same_width() {
    let source = "let größe: Array<\"😀\"> = f<string>(a!, b as any); // 😀";
    let code = run("typescript", source).unwrap();
    assert_eq!(code, "let größe              = f        (a , b       ); // 😀");
    assert_eq!(code.encode_utf16().count(), source.encode_utf16().count());
}

#[test]
fn annotations_go() {
    ts("let x: number = 1, y!: string, z: { a: 1; b: [c: 2] };", "let x = 1, y , z ;");
    ts(
        "function f<T>(this: Foo, a?: number, b: string = 'x', ...r: T[]): asserts a is string {}",
        "function f ( a , b = 'x', ...r ) {}",
    );
    ts("const { a, b: c }: { a: 1, b: 2 } = o, [d]: number[] = p;", "const { a, b: c } = o, [d] = p;");
    ts("try {} catch (e: unknown) {}", "try {} catch (e ) {}");
    ts(
        "const f = <T,>(a: T): T => a, g = async <T>(x: T): Promise<T> => x;",
        "const f = (a ) => a, g = async (x ) => x;",
    );
    ts("new Map<string, number>(); tag<string>`x`; f?.<T>(1);", "new Map (); tag `x`; f?. (1);");
    ts("let a = b satisfies C, d = <E>f, g = h as const;", "let a = b , d = ( f), g = h ;");
    ts(
        "const s = 'a: number'; // x: number\nconst r = /: string/;",
        "const s = 'a: number'; // x: number const r = /: string/;",
    );
    ts("for (const i of x as number[]) {}", "for (const i of x ) {}");
    ts("(x as any) = 1; (y!) = 2; z!.a!++;", "(x ) = 1; (y ) = 2; z .a ++;");
}

#[test]
fn declarations_of_types_go() {
    ts("type A = 1;\ninterface B {\n  c: 1\n}\nlet d", "; ; let d");
    ts("declare const a: 1; declare function f(): void; declare class C {} declare enum E {}", "; ; ; ;");
    ts(
        "declare module 'x' { let a: 1 }\ndeclare global { interface W {} }\nnamespace T { export type A = 1 }",
        "; ; ;",
    );
    ts("function f(a: 1): 1;\nfunction f(a: any) { return a }", "; function f(a ) { return a }");
    ts("export type A = 1; export interface B {} export type { C }; export default interface D {}", "; ; ; ;");
    ts(
        "import type A from 'a'; import type { B } from 'b'; import { type C } from 'c'; import type D = require('d');",
        "; ; ; ;",
    );
}

#[test]
fn a_line_end_that_ended_a_statement_still_does() {
    ts("const h = x as any\n(foo)", "const h = x; (foo)");
    ts("const h = x!\n(foo)", "const h = x (foo)");
    ts("let a = b as c\ntype T = 1\n[d]", "let a = b; ; [d]");
    ts("a\ninterface T {}\n(b)", "a ; (b)");
    ts("class A { x = y as any\n readonly ['z'] = 1 }", "class A { x = y; ; ['z'] = 1 }");
    ts("function f(a) { return <any>a! }", "function f(a) { return ( a ); }");
    ts("const f = (a: 1): {\n b: 1\n} => a", "const f = (a ) => a");
    assert_eq!(run("typescript", "const f = (a): {\n} => a").unwrap(), "const f = (a    \n) => a");
}

#[test]
fn classes() {
    ts(
        "abstract class A<T> extends B<T> implements C, D<E> { \
         private readonly a: 1 = 1; declare b: 2; static c?: 3; d!: 4 }",
        "class A extends B { a = 1; ; static c ; d }",
    );
    ts(
        "class A { abstract f(): void; g(): 1; g(a?: 1) {} [k: string]: 1; protected async h?(): any {} }",
        "class A { ; ; g(a ) {} ; async h () {} }",
    );
    ts(
        "class A { constructor(private x: 1, public readonly y = 2, z) { f() } }",
        "class A { constructor( x , y = 2, z) { this.x = x; this.y = y; f() } }",
    );
    ts(
        "class A extends B { constructor(override x: 1) { 'use strict'; super(x); f() } }",
        "class A extends B { constructor( x ) { 'use strict'; super(x);; this.x = x; f() } }",
    );
    ts(
        "class A { public static override readonly x = 1; private get y(): 1 { return 1 } }",
        "class A { static x = 1; get y() { return 1 } }",
    );
    ts("class A { readonly = 1; declare = 2; abstract() {} }", "class A { readonly = 1; declare = 2; abstract() {} }");
    ts("const C = class<T> implements D {}", "const C = class {}");
}

#[test]
fn enums() {
    ts(
        "enum A { X, Y = 5, 'a-b' = X | A.Y,\n}",
        "var A = ((A) => { let __v = -1; const X = A[\"X\"] = ++__v; typeof __v === \"number\" && (A[__v] = \"X\"); \
         const Y = A[\"Y\"] = __v = (5); typeof __v === \"number\" && (A[__v] = \"Y\"); \
         A[\"a-b\"] = __v = (X | A.Y); typeof __v === \"number\" && (A[__v] = \"a-b\"); return A; })({});",
    );
    ts(
        "export const enum A {}\nenum A {}",
        "var A = ((A) => { let __v = -1; return A; })({}); ((A) => { let __v = -1; return A; })(A);",
    );
    ts(
        "{ enum A { default } }",
        "{ let A = ((A) => { let __v = -1; A[\"default\"] = ++__v; \
         typeof __v === \"number\" && (A[__v] = \"default\"); return A; })({}); }",
    );
    becomes("module", "export enum A {}", "export var A = ((A) => { let __v = -1; return A; })({});");
}

#[test]
fn namespaces() {
    ts(
        "namespace N {\n  export const x: 1 = 1\n  export type T = 1\n}",
        "var N = ((N) => { Object.defineProperty(N, \"x\", { enumerable: true, configurable: true, \
         get: () => x, set: (__v) => { x = __v; } }); \
         const x = 1 ; ; return N; })({});",
    );
    ts("class C {}\nnamespace C { f() }", "class C {} ((C) => { f() ; return C; })(C);");
    ts(
        "namespace A.B { f() }",
        "var A = ((A) => { let B = A.B = ((B) => { f() ; return B; })(A.B || {});; return A; })({});",
    );
}

#[test]
fn imports_ask_the_driver() {
    let js = |source, expected| becomes("javascript", source, expected);
    js("import a from 'x'", "const { default: a } = await $mport(\"x\", undefined, [\"default\"]);");
    js("import * as a from 'x'", "const a = await $mport(\"x\");");
    js("import a, * as b from 'x'", "const b = await $mport(\"x\"), { default: a } = b;");
    js(
        "import {\n  a,\n  b as c,\n  'd-e' as f,\n} from 'x';",
        "const { \"a\": a, \"b\": c, \"d-e\": f } = await $mport(\"x\", undefined, [\"a\", \"b\", \"d-e\"]);",
    );
    js("import 'x'; import {} from 'y'", "void await $mport(\"x\"); void await $mport(\"y\");");
    js(
        "import a from './a.json' with { type: 'json' }",
        "const { default: a } = await $mport(\"./a.json\", { with: { \"type\": \"json\" } }, [\"default\"]);",
    );
    js(
        "import a from 'x\"\\\\\\u2028'",
        "const { default: a } = await $mport(\"x\\\"\\\\\\u2028\", undefined, [\"default\"]);",
    );
    js(
        "const m = await import('x'); import.meta.url; f(() => import(y))",
        "const m = await $mport('x'); $mport.meta.url; f(() => $mport(y))",
    );
    js("x.import('a'); const s = 'import a from b'", "x.import('a'); const s = 'import a from b'");
    ts("import { a, type B } from 'x'", "const { \"a\": a } = await $mport(\"x\", undefined, [\"a\"], true);");
    ts("import fs = require('fs'); import A = B.C", "const fs = require('fs'); const A = B.C");
}

#[test]
fn exports_keep_their_declarations() {
    let js = |source, expected| becomes("javascript", source, expected);
    js("export const a = 1; export function f() {} export class C {}", "const a = 1; function f() {} class C {}");
    js(
        "export { a, b as c }; export * from 'x'; export { d } from 'y'",
        "; void await $mport(\"x\"); void await $mport(\"y\");",
    );
    js("export default function f() {}", "function f() {}");
    js("export default class C {}", "class C {}");
    js("a\nexport default { b: 1 }", "a ;( { b: 1 });");
    js("export default function () {}", ";( function () {});");
    ts("export = f", "module.exports = f");
}

#[test]
fn a_module_keeps_what_is_there_at_run_time() {
    becomes("module", "import { A, B, type C } from './x.ts'; let x: B = A", "import { A, } from './x.ts'; let x = A");
    becomes("module", "import D from './d.ts'; let x: D; export { type Z, x as Q }", "; let x ; export { x as Q }");
    becomes(
        "module",
        "import './s.ts'; export default x as any; import.meta.url; import('y')",
        "import './s.ts'; export default x ; import.meta.url; import('y')",
    );
}

#[test]
fn live_cells_can_declare_again() {
    becomes("javascript live", "const a = 1, { b } = c;\n{ const d = 1 }", "let a = 1, { b } = c; { const d = 1 }");
    becomes(
        "javascript live",
        "const a = 1; a = 2; a++; [a] = x",
        "let a = 1; $mport.constant.a = 2; $mport.constant.a++; [$mport.constant.a] = x",
    );
    becomes("javascript live", "const a = 1; { let a = 2; a = 3 }", "let a = 1; { let a = 2; a = 3 }");
    becomes(
        "javascript live",
        "import a from 'x'",
        "let { default: a } = await $mport(\"x\", undefined, [\"default\"]);",
    );
    becomes("javascript let=f let=v", "function f() {}\nvar v = 1", "let f = function f() {}; let v = 1");
    becomes("javascript var=C var=a", "class C {}\nlet a = 1", "var C = class C {}; var a = 1");
}

#[test]
fn a_script_is_also_read() {
    becomes("javascript", "var await = 010; with (a) b; import('x')", "var await = 010; with (a) b; $mport('x')");
}

#[test]
fn what_is_wrong_is_shown_with_its_place() {
    fails("javascript", "let a = 1;\nlet b = (;", "SyntaxError: Unexpected token (2:10)\nlet b = (;\n         ^");
    fails(
        "typescript",
        "  @d class A {}",
        "SyntaxError: decorators do not work here; call the decorator as a function instead (1:3)\n\
         \x20 @d class A {}\n  ^",
    );
    assert!(run("typescript", "let x: = 1").is_err());
    assert!(run("javascript", "let x: number = 1").is_err());
    assert!(run("javascript", "\u{0}").is_err());
}

#[test]
fn options_are_checked() {
    let parse = |text: &str| Options::parse(text.split(' ').map(str::to_owned)).map(|_| ());
    assert!(parse("typescript live let=a var=b").is_ok());
    assert!(parse("python").is_err());
    assert!(parse("javascript dead").is_err());
}
