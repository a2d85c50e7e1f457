import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { task as digits } from '../../../demos/digits/demo.ts'
import { experiments } from '../../../demos/experiments.ts'
import { CpuRuntime } from '../../../src/graph/memory/runtime.ts'
import { Flatten, Linear, ReLU } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { SyncBatchNorm } from '../../../src/nn/sync-batch-norm.ts'
import { checkDraft, } from '../../../src/ui/settings/check.ts'
import * as D from '../../../src/ui/settings/check.ts'
import { serveDigits } from '../../support/served-digits.ts'
import { lossesOf, trainRanks } from '../../support/train-ranks.ts'
beforeEach(() => serveDigits(36, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())
const own = (size: number, input: any, task: any) =>
  trainRanks(size, { batchSize: 15, seed: 3, epochs: 2, ...input }, () => new CpuRuntime(), undefined, task)
const say = (ends: any[]) => ends.map((e) => (e.reason ? String(e.reason) : e.result.paramHash)).join(' | ')
test('nan', async () => {
  let calls = 0
  const fill = (data: any, set: any, own: any, inputs: any) => {
    ;(digits as any).fill(data, set, own, inputs)
    if (set === 'train' && [...own].includes(7)) inputs[Object.keys(inputs)[0]][0] = NaN
  }
  for (const exact of [true, false]) for (const n of [1, 3]) {
    const t0 = performance.now()
    const ends = await own(n, { exact, virtualWorkers: 4 }, { ...digits, fill })
    console.log('NaN data exact', exact, n, say(ends), lossesOf(ends[0]).length, 'steps', Math.round(performance.now() - t0), 'ms')
  }
  class Bad extends Module { forward(x: any) { return x.mul(0).sqrt() } }
  const model = () => new Sequential(new Flatten(), new Linear(784, 16), new Bad() as any, new Linear(16, 10))
  console.log('finite loss, nan grad', say(await own(2, { exact: true }, { ...digits, model })))
  console.log('finite loss, nan grad plain', say(await own(2, { }, { ...digits, model })))
  console.log('lr huge', say(await own(2, { exact: true, lr: 1e37, optimizer: 'sgd' }, digits)))
}, 120000)
test('sync bn', async () => {
  const model = () => new Sequential(new Flatten(), new Linear(784, 16), new SyncBatchNorm(16), new ReLU(), new Linear(16, 10))
  for (const n of [1, 3]) console.log('SYNCBN', n, say(await own(n, { exact: true, virtualWorkers: 3 }, { ...digits, model })))
}, 60000)
test('form', () => {
  const draft: any = { ...(D as any).emptyDraft, ...(D as any).draftOf?.(experiments) }
  console.log(Object.keys(D))
})
test('words', () => {
  for (const more of [{ precision: 'float16' }, { strategy: 'alone' }, { parallel: 'fsdp' }, { partition: 'own-slice' }, { virtualWorkers: 65 }, { hashEvery: 1 }]) {
    try { experiments.parseTrainConfig({ exact: true, ...more }); console.log('OK', JSON.stringify(more)) } catch (e) { console.log(String(e)) }
  }
  try { experiments.parseTrainConfig({ virtualWorkers: 4 }); console.log('virtualWorkers without exact: OK') } catch (e) { console.log(String(e)) }
})
