import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { task as digits } from '../../../demos/digits/demo.ts'
import { CpuRuntime } from '../../../src/graph/memory/runtime.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Flatten, Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { trainDigits } from '../../support/digit-ranks.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { serveDigits } from '../../support/served-digits.ts'
import { lossesOf, resultsOf, resumedOf, trainRanks } from '../../support/train-ranks.ts'
beforeEach(() => serveDigits(36, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())
const E = { exact: true, virtualWorkers: 4, epochs: 4 } as any
const say = (ends: any[]) => ends.map((e) => (e.reason ? String(e.reason) : `${e.result.paramHash} acc ${e.result.value} held ${e.result.heldOutLoss} samples ${e.result.samples} shares ${e.result.record.shares}`)).join(' | ')
test('resume', async () => {
  for (const optimizer of ['adamw', 'sgd']) {
    console.log(optimizer, 'straight', say(await trainDigits(1, { ...E, optimizer })))
    for (const [n, m] of [[2, 3], [1, 5]]) {
      const f = seenFolder()
      await trainDigits(n, { ...E, optimizer, steps: 5, checkpointEvery: 5 }, f)
      const r = await trainDigits(m, { ...E, optimizer, resume: 'latest' }, f)
      console.log(optimizer, 'exact->exact', n, m, say(r.slice(0, 2)), JSON.stringify((resumedOf(r[0])[0] as any)?.differences))
    }
    const f = seenFolder()
    await trainDigits(2, { epochs: 4, optimizer, steps: 5, checkpointEvery: 5 } as any, f)
    const r = await trainDigits(2, { ...E, optimizer, resume: 'latest' }, f)
    console.log(optimizer, 'plain->exact', say(r), JSON.stringify((resumedOf(r[0])[0] as any)?.differences))
    const g = seenFolder()
    await trainDigits(2, { ...E, optimizer, steps: 5, checkpointEvery: 5 }, g)
    const s = await trainDigits(2, { epochs: 4, optimizer, resume: 'latest' } as any, g)
    console.log(optimizer, 'exact->plain', say(s), JSON.stringify((resumedOf(s[0])[0] as any)?.differences))
    const h = seenFolder()
    await trainDigits(2, { ...E, optimizer, steps: 5, checkpointEvery: 5 }, h)
    const t = await trainDigits(2, { ...E, optimizer, resume: 'latest', virtualWorkers: 2, lr: 0.01 } as any, h)
    console.log(optimizer, 'V4->V2', say(t), JSON.stringify((resumedOf(t[0])[0] as any)?.differences))
  }
}, 120000)
const own = (size: number, model: () => any, input: any, folder?: any) =>
  trainRanks(size, { batchSize: 15, bucketCapMb: 0.3, seed: 3, epochs: 2, ...input }, () => new CpuRuntime(), () => folder && { folder: async () => folder }, { ...digits, model } as any)
test('frozen', async () => {
  const model = () => { const l = new Linear(784, 16); l.requiresGrad_(false); return new Sequential(new Flatten(), l, new ReLU(), new Linear(16, 10)) }
  for (const n of [1, 3]) console.log('frozen', n, say(await own(n, model, { exact: true, virtualWorkers: 4 })))
  const f = seenFolder()
  console.log(say(await own(2, model, { epochs: 1, checkpointEvery: 0 }, f)))
  console.log('frozen plain->exact', say(await own(2, model, { exact: true, resume: 'latest', epochs: 2 }, f)))
  const g = seenFolder()
  console.log(say(await own(2, model, { exact: true, epochs: 1, checkpointEvery: 0 }, g)))
  console.log('frozen exact->plain', say(await own(2, model, { resume: 'latest', epochs: 2 }, g)))
  console.log('frozen exact->exact', say(await own(3, model, { exact: true, resume: 'latest', epochs: 2 }, g)))
  const none = () => { const s = model(); s.requiresGrad_(false); return s }
  console.log('all frozen exact', say(await own(2, none, { exact: true })))
}, 120000)
test('bn 1 row', async () => {
  const made: any[] = []
  const model = () => { const m = new Sequential(new Flatten(), new Linear(784, 16), new BatchNorm1d(16), new ReLU(), new Linear(16, 10)); made.push(m); return m }
  for (const n of [1, 2]) {
    const ends = await own(n, model, { exact: true, virtualWorkers: 64, batchSize: 15 })
    const st = await made.at(-1).stateDict()
    console.log('bn rows=1', n, say(ends), lossesOf(ends[0]), [...st['2.running_var'].data].slice(0, 3), st['2.num_batches_tracked'].data)
  }
  for (const n of [1, 2]) {
    const ends = await own(n, model, { exact: true, virtualWorkers: 3, batchSize: 7, epochs: 1 })
    const st = await made.at(-1).stateDict()
    console.log('bn tail of 1', n, say(ends), [...st['2.running_var'].data].slice(0, 3), st['2.num_batches_tracked'].data)
  }
}, 120000)
