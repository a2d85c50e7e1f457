import { expect, it } from 'vitest'
import { metaOf } from '../../../demos/experiments.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { Expectation } from '../../../src/trainer/settings/demo-meta.ts'
import { judge } from '../../../src/ui/demo/expected.tsx'
import type { Snapshot } from '../../../src/ui/state/snapshot.ts'
import { assigned, failed, makeResult, play, training } from '../../support/page-states.ts'

/** Digits, which are better the higher; the made-up run of 540 steps is tested every 180: 0.955, 0.971, 0.975. */
const atLeast = (value: number, withinSteps = 400): Expectation => ({
  config: { model: 'mlp', epochs: 1, seed: 0 },
  atLeast: value,
  withinSteps,
})
const atMost = (value: number): Expectation => ({
  config: { model: 'mlp', epochs: 1, seed: 0 },
  atMost: value,
  withinSteps: 400,
})

const after = (steps: number, config: TrainConfigInput = {}) =>
  training(1, steps, 0, { from: assigned(1), config })
const finished = (snapshot: Snapshot, steps: number) =>
  play(snapshot, { type: 'finished', result: { ...makeResult(1), steps }, bytesSent: 0 })

it.each<[string, Snapshot | null, Expectation, 'open' | 'reached' | 'missed', RegExp]>([
  ['before any run', null, atLeast(0.9), 'open', /^With model mlp, seed 0; /],
  ['before the first test', after(100), atLeast(0.9), 'open', /^Step 100\.$/],
  ['reached at the first test', after(200), atLeast(0.95), 'reached', /step 180: 95\.5 %/],
  ['reached at the second', after(400), atLeast(0.97), 'reached', /step 360: 97/],
  ['reached, then the run ended', finished(after(540), 540), atLeast(0.95), 'reached', /step 180/],
  ['not yet, with tests to come', after(200), atLeast(0.97), 'open', /^Step 200\.$/],
  ['at most: reached', after(200), atMost(0.96), 'reached', /step 180/],
  ['at most: not yet', after(200), atMost(0.5), 'open', /^Step 200\.$/],
  ['at most: missed', after(540), atMost(0.5), 'missed', /Not reached/],
  ['too late: in a test behind the bound', after(540), atLeast(0.973), 'missed', /Not reached/],
  ['just in time: in the test at the bound', after(360), atLeast(0.97, 360), 'reached', /step 360/],
  ['at the bound, its test on the way', after(359), atLeast(0.99, 359), 'open', /^Step 359\.$/],
  ['ended at the bound untested', finished(after(359), 359), atLeast(0.99, 359), 'missed', /Not/],
  ['ended early', finished(after(100), 100), atLeast(0.9), 'open', /ended at step 100\.$/],
  ['failed early', failed(1, 'gpu.lost', 'lost'), atLeast(0.99), 'open', /ended at step 203\.$/],
  [
    'another seed',
    after(200, { seed: 1 }),
    atLeast(0.9),
    'open',
    /^Not checked: .*model mlp, seed 0/,
  ],
  ['another model', after(200, { model: 'cnn' }), atLeast(0.9), 'open', /^Not checked/],
  ['another batch', after(200, { batchSize: 32 }), atLeast(0.9), 'open', /^Not checked/],
  ['another learning rate', after(200, { lr: 0.01 }), atLeast(0.9), 'open', /^Not checked/],
  ['the default rate, written out', after(200, { lr: 1e-3 }), atLeast(0.9), 'reached', /step 180/],
  ['among strangers', after(200, { trust: 'strangers' }), atLeast(0.9), 'reached', /step 180/],
  ['tested more often', after(200, { evaluateEvery: 60 }), atLeast(0.9), 'reached', /step 180/],
  ['gone on from a checkpoint', after(200, { resume: 'latest' }), atLeast(0.9), 'open', /^Not/],
])('%s', (_, snapshot, expectation, is, words) => {
  const judged = judge(expectation, 'digits', metaOf('digits'), snapshot?.run ?? null)
  expect(judged).toEqual({ is, words: expect.stringMatching(words) })
})
