import { expect, test } from 'vitest'
import { agreeOnState, type Held } from '../../../src/ddp/committed/committed-states.ts'
import { type KeptState, packState, unpackState } from '../../../src/trainer/saves/kept-states.ts'
import { hashOfState } from '../../../src/trainer/saves/state-hash.ts'

/** `72a 50x`: the states that a rank has kept, by step and hash. */
const held = (text: string): Held[] =>
  text.split(' ').flatMap((one) => {
    const [, step, hash] = /^(\d+)(\w)$/.exec(one) ?? []
    return step === undefined ? [] : [{ step: Number(step), hash }]
  })

test.each([
  ['nobody has kept any', ['', ''], 0, [false, false], undefined],
  ['one has the newest', ['72a 50x', '50x', '73b 50x'], 73, [false, false, true], undefined],
  ['all have the same', ['72a', '72a'], 72, [true, true], undefined],
  ['one differs', ['72a 50x', '72b 50x', '72a 50x', ''], 72, [true, false, true, false], false],
  ['most differ from rank 0', ['72a', '72b', '72b'], 72, [false, true, true], false],
  ['as many differ, and agree in an older one', ['72a 50x', '72b 50x'], 50, [true, true], false],
  ['as many differ in all', ['72a 50x', '72b 50y', ''], 72, [true, false, false], true],
] as const)(
  'where %s, ranks continue from the state of most',
  (_, received, step, hasIt, isLasting) => {
    const agreed = agreeOnState(received.map(held))
    expect(agreed).toMatchObject({ step, hasIt })
    expect(agreed.differed?.isLasting).toBe(isLasting)
  },
)

test('the text says which states were replaced, and by which', () => {
  const textOf = (...received: string[]) => agreeOnState(received.map(held)).differed?.text
  expect(textOf('72a', '72b', '72a')).toBe(
    'the state of rank 1 differed from that of ranks 0 and 2, and is replaced by it',
  )
  expect(textOf('72a 50x', '72b 50x')).toBe(
    'the states of ranks 0 and 1 differed, and no state has most ranks: they continue from step 50, in which they agree',
  )
  expect(textOf('', '72a', '72b')).toBe(
    'the states of ranks 1 and 2 differed, and no state has most ranks: all take that of rank 1, and nothing says which was right',
  )
})

test('a state that has travelled has the hash that it had, and each bit of it counts', () => {
  const state = (last: number, steps = 3) => ({
    progress: { step: 3, samples: 5, loss: 1, value: Number.NaN, best: 0.5 },
    model: { 'b.weight': { shape: [2], data: Float32Array.of(1, last) } },
    optimizer: {
      state: { 0: { step: steps, exp_avg: { shape: [1], data: Float32Array.of(0.1) } } },
      exponents: Int32Array.of(3, -4),
      param_groups: [{ lr: 1e-3, params: [0] }],
    },
    scaler: undefined,
    log: undefined,
  })
  const kept = state(2)
  const hash = hashOfState(kept)
  const other = unpackState(packState(kept as unknown as KeptState))
  expect(other.progress.samples).toBe(0)
  expect(hashOfState(other)).toBe(hash)
  expect(hashOfState(state(2 + 2 ** -22))).not.toBe(hash)
  expect(hashOfState(state(2, 4))).not.toBe(hash)
})
