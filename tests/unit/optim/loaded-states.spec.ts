import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Adagrad } from '../../../src/optim/adagrad.ts'
import { Adam } from '../../../src/optim/adam.ts'
import { ExactOptimizer } from '../../../src/optim/exact/exact-optimizer.ts'
import { Lion } from '../../../src/optim/lion.ts'
import type { Optimizer } from '../../../src/optim/optimizer.ts'
import { RMSprop } from '../../../src/optim/rmsprop.ts'
import { SGD } from '../../../src/optim/sgd.ts'

// What no optimizer saves is refused: halves of states, names and numbers that nothing reads.

const runtime = new ReferenceRuntime()
const parameters = () => [1, 2].map((value) => new Parameter([1], Float32Array.of(value)))
const tensor = (value: number) => ({ shape: [1], data: Float32Array.of(value) })

type Entry = Record<string, unknown>
interface Saved {
  state: Record<string, Entry | undefined>
  param_groups: { params: unknown[] }[]
}

/** A state after one step, in which only the first parameter had a gradient. */
async function saved(make: (own: Parameter[]) => Optimizer): Promise<[Optimizer, () => Saved]> {
  const own = parameters()
  const optimizer = make(own)
  const train = () => {
    own[0].square().sum().backward()
    optimizer.step()
    return {}
  }
  await (await compile(train, {}, { runtime })).run({})
  const state = await optimizer.stateDict()
  return [optimizer, () => structuredClone(state) as unknown as Saved]
}

const states: [string, (own: Parameter[]) => Optimizer, string[]][] = [
  ['Adam', (own) => new Adam(own), ['step', 'exp_avg', 'exp_avg_sq']],
  [
    'Adam, amsgrad',
    (own) => new Adam(own, { amsgrad: true }),
    ['step', 'exp_avg', 'exp_avg_sq', 'max_exp_avg_sq'],
  ],
  ['SGD', (own) => new SGD(own, { momentum: 0.9 }), ['momentum_buffer']],
  [
    'RMSprop',
    (own) => new RMSprop(own, { momentum: 0.9, centered: true }),
    ['step', 'square_avg', 'grad_avg', 'momentum_buffer'],
  ],
  ['Adagrad', (own) => new Adagrad(own), ['step', 'sum']],
  ['Lion', (own) => new Lion(own), ['exp_avg']],
]

test.each(states)(
  '%s refuses half of a state, and takes what PyTorch saves',
  async (_, make, names) => {
    const [optimizer, copy] = await saved(make)
    expect(Object.keys(copy().state[0]!)).toEqual(names)
    const refuses = (change: (state: Saved) => unknown, text: RegExp) => {
      const state = copy()
      change(state)
      expect(() => optimizer.loadStateDict(state as never)).toThrow(
        expect.objectContaining({ code: 'data.malformed', message: expect.stringMatching(text) }),
      )
    }
    for (const name of names.slice(names.length > 1 ? 0 : 1))
      for (const value of [undefined, null])
        refuses(
          ({ state }) => {
            if (value === null) state[0]![name] = value
            else delete state[0]![name]
          },
          new RegExp(`as "${name}" of 0`),
        )
    const changes: [(saved: Saved) => unknown, RegExp][] = [
      [({ state }) => Object.assign(state[0]!, { exp_avg_cubed: tensor(1) }), /"exp_avg_cubed"/],
      [({ state }) => Object.assign(state, { abc: {} }), /one of "abc"/],
      [({ param_groups: [group] }) => Object.assign(group, { params: [0, 0] }), /"params"/],
      [({ param_groups: [group] }) => Object.assign(group, { params: [0, {}] }), /"params"/],
      [({ state }) => Object.assign(state, { '': {} }), /one of ""/],
      [({ param_groups: [group] }) => Object.assign(group, { params: [5, 6] }), /one of "0"/],
    ]
    for (const [change, text] of changes) refuses(change, text)
    if (names[0] === 'step')
      for (const step of [
        -1,
        1.5,
        1e20,
        Number.NaN,
        tensor(0.5),
        { shape: [0], data: new Float32Array() },
      ])
        refuses(({ state }) => Object.assign(state[0]!, { step }), /a whole number as "step" of 0/)
    for (const name of names.filter((one) => /sq|sum/.test(one)))
      refuses(({ state }) => Object.assign(state[0]!, { [name]: tensor(-1) }), /sums of squares/)
    expect(await optimizer.stateDict()).toEqual(copy())

    // Numbers as old versions of PyTorch gave them, NaN after a failed run, nothing at all of a parameter without a gradient.
    const { state, param_groups } = copy()
    const entry = { ...state[0], [names.at(-1)!]: tensor(Number.NaN) }
    param_groups[0].params = [70, 71]
    optimizer.loadStateDict({ state: { 70: entry, 71: {} }, param_groups } as never)
    expect((await optimizer.stateDict()).state[0]).toEqual(entry)
  },
)

test('SGD without momentum takes the nulls that PyTorch saves', async () => {
  const [optimizer, copy] = await saved((own) => new SGD(own))
  const state = { ...copy(), state: { 0: { momentum_buffer: null } } }
  optimizer.loadStateDict(state as never)
})

test('exact training goes by the numbers in "params"', async () => {
  const make = () => new ExactOptimizer(parameters(), { kind: 'sgd', lr: 1, momentum: 0.5 })
  const state = { 9: { momentum_buffer: tensor(3) } }
  const [group] = (await make().stateDict()).param_groups
  const exact = make()
  exact.loadStateDict({ state, param_groups: [{ ...group, params: [8, 9] }] })
  expect((await exact.stateDict()).state).toEqual({ 1: { momentum_buffer: tensor(3) } })
})
