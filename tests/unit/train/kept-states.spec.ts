import { expect, test } from 'vitest'
import { save } from '../../../src/data/saved-tree.ts'
import { type KeptState, packState, unpackState } from '../../../src/trainer/saves/kept-states.ts'
import { RunLog } from '../../../src/trainer/watch/run-log.ts'

const progress = { step: 7, samples: 9, loss: 0.5, value: Number.NaN, best: -Infinity }
const parts = { model: {}, optimizer: { state: {}, param_groups: [] } }

test('a state arrives as it was kept, with numbers that are not finite and with its log', () => {
  const log = new RunLog().file({ exact: true }, null)
  for (const kept of [
    { ...parts, progress, log },
    { ...parts, progress, scaler: { scale: 8 } },
    { ...parts, progress, limits: { '0: 64': 0.5 } },
  ] as unknown as KeptState[])
    expect(unpackState(packState(kept))).toEqual({ ...kept, progress: { ...progress, samples: 0 } })
})

test.each([
  ['a log that is none', { log: { unlike: 3 } }],
  ['no log', { log: null }],
  ['no progress', { progress: null }],
  ['a negative step', { progress: { ...progress, step: -1 } }],
  ['a text as the loss', { progress: { ...progress, loss: 'low' } }],
  ['no best', { progress: { ...progress, best: null } }],
  ['a number as the model', { model: 3 }],
  ['a list as the optimizer', { optimizer: [] }],
  ['a limit below 0', { limits: { '0: 64': -1 } }],
  ['a text as the loss scale', { scaler: 'x' }],
])('a state with %s is refused', (_, wrong) => {
  const bytes = save({ ...parts, progress, ...wrong })
  expect(() => unpackState(bytes)).toThrow(
    expect.objectContaining({
      code: 'data.malformed',
      message: expect.stringContaining('the kept state: expected the state of a run'),
    }),
  )
})
