import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { entries } from '../../../scripts/entries.ts'
import {
  type Declarations,
  parse,
  readDeclarations,
  unnamedTypes,
} from '../../support/declarations.ts'
import { repository } from '../../support/repository.ts'

// Callers of the library can name every type that its functions, classes and types mention.

const because = (reason: string, names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, reason]))

/** `file#name` of what stays inside, with the reason. */
const inside: Record<string, string> = {
  ...because('a base class, to be inherited from: its members are those of the public classes', [
    'nn/batch-norm.d.ts#BatchNorm',
    'nn/module.d.ts#ModuleSequence',
    'nn/losses.d.ts#PlainLoss',
    'nn/recurrent-base.d.ts#RecurrentBase',
    'nn/recurrent.d.ts#CellBase',
    'optim/adam.d.ts#AdamBase',
    'peer/link/link-base.d.ts#LinkBase',
    'peer/store/timed-store.d.ts#TimedStore',
  ]),
  ...because('a part of a model, which whoever has the model reaches by its fields', [
    'nn/gpt.d.ts#Head',
    'nn/gpt.d.ts#Transformer',
    'nn/resnet.d.ts#Block',
  ]),
  ...because('a type that distributed/call/call.ts exports under the same name', [
    'peer/collective/element.d.ts#ReduceOp',
  ]),
  ...because('a part of options that have names', [
    'nn/convolution.d.ts#WithBias',
    'nn/convolution.d.ts#WithPaddingMode',
  ]),
  ...because('the graph and its programs, between the modules of the library', [
    'gpu/pipeline.d.ts#PipelineCache',
    'graph/plan/step-program.d.ts#PreparedStep',
    'graph/trace/bucket.d.ts#Bucket',
    'graph/trace/stage-marks.d.ts#StageMarks',
    'parallel/pipeline/orders.d.ts#TaskOrder',
    'graph/trace/exchange.d.ts#GradientExchange',
    'graph/memory/memory-device.d.ts#Memory',
    'graph/plan/step-program.d.ts#OnMark',
    'graph/trace/stored-tensor.d.ts#Home',
    'graph/trace/trace.d.ts#Accumulation',
    'graph/trace/trace.d.ts#Trace',
    'graph/trace/value.d.ts#GraphNode',
    'graph/trace/value.d.ts#GraphValue',
    'graph/trace/value.d.ts#Holding',
  ]),
  ...because('what the library gives the bucket of a hook, which none makes outside', [
    'graph/trace/exchange.d.ts#BucketPlace',
    'ddp/hooks/grad-bucket.d.ts#Content',
    'ddp/hooks/grad-bucket.d.ts#HookKeys',
  ]),
  ...because('what an optimizer of the library is made of; none can be made outside', [
    'kernels/grad-scaler/settle.d.ts#SettleAttrs',
    'optim/cohort.d.ts#Cohort',
    'optim/slice.d.ts#Slice',
    'optim/state-dict.d.ts#StateNames',
  ]),
  ...because('what the state of a scheduler has, which its methods alone read', [
    'optim/lr-scheduler/state.d.ts#StateFields',
  ]),
  ...because('what the training page reads of its group', [
    'peer/collective/collectives.d.ts#HeldBy',
  ]),
  ...because('streams of random numbers are made by the library alone', [
    'util/random.d.ts#Purpose',
  ]),
}

const folders: string[] = []
function declarationsOf(config: string): Declarations {
  const folder = mkdtempSync(join(tmpdir(), 'tabring-types-'))
  folders.push(folder)
  const tsc = join(repository, 'node_modules', 'typescript', 'bin', 'tsc')
  const args = [tsc, '-p', join(repository, config), '--outDir', folder]
  execFileSync(process.execPath, args, { cwd: repository })
  return readDeclarations(folder)
}
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

test('every type that a public declaration mentions has a public name', () => {
  const files = entries.map(({ file }) => file.replace(/^src\/(.*)\.ts$/, '$1.d.ts'))
  const unnamed = [...unnamedTypes(declarationsOf('tsconfig.lib.json'), ...files)]
  const toExport = unnamed.filter(([name]) => !Object.hasOwn(inside, name))
  const received = toExport.map(([name, by]) => `${name}, which ${by.join(' and ')} mention`)
  expect(received, 'export these from an entry point in src/entries').toEqual([])
  const names = unnamed.map(([name]) => name)
  const surplus = Object.keys(inside).filter((name) => !names.includes(name))
  expect(surplus, 'no longer mentioned, or public by now').toEqual([])
}, 60_000)

test('every type that the plugin and the fixtures mention has a name beside them', () => {
  const all = declarationsOf('tsconfig.launch.json')
  for (const entry of ['node/vite-plugin.d.ts', 'node/playwright/index.d.ts'])
    expect([...unnamedTypes(all, entry).keys()], entry).toEqual([])
}, 60_000)

const hidden = 'declare class Hidden {}'

function unnamedIn(...lines: string[]): string[] {
  const texts = { 'index.d.ts': `export * from './a.ts'`, 'a.d.ts': lines.join('\n') }
  const all = new Map(Object.entries(texts).map(([name, text]) => [name, parse(name, text)]))
  return [...unnamedTypes(all, 'index.d.ts').keys()]
}

test.each([
  ['a parameter', 'export declare function f(x: Hidden): void'],
  ['a field of options', 'export declare function f(x?: { a?: readonly Hidden[] }): void'],
  ['a result in a promise', 'export declare const f: () => Promise<Hidden | null>'],
  ['a bound of a type parameter', 'export declare function f<T extends Hidden>(x: T): T'],
  ['a method of a class', 'export declare class C { m(x: Hidden): void }'],
  ['a base class', 'export declare class C extends Hidden {}'],
  ['a field of a type', 'export type G = { readonly [key: string]: Hidden }'],
  ['a base of an interface', 'export interface G extends Hidden {}'],
])('the check sees %s', (_, line) => {
  expect(unnamedIn(line, hidden)).toEqual(['a.d.ts#Hidden'])
  expect(unnamedIn(line, `export ${hidden}`)).toEqual([])
})

test('the check passes over private members, type parameters and what the language has', () => {
  const line =
    'export declare class C<T> { #private; private x: Hidden; m<U>(a: T, b: U): Map<string, U> }'
  const generic =
    'export type G<T> = T extends readonly (infer U)[] ? U : { [K in keyof T]: T[K] | K }'
  expect(unnamedIn(hidden, line, generic)).toEqual([])
})
