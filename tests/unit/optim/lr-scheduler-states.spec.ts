import { describe, expect, test } from 'vitest'
import * as s from '../../../src/entries/optim/lr-scheduler.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { SGD } from '../../../src/optim/sgd.ts'

// States and fields that a scheduler's constructor would refuse are refused wherever they come from, and nothing changes.

const optimizer = () => new SGD([new Parameter([1], new Float32Array(1))], { lr: 1, momentum: 0.9 })
const { NaN: nan } = Number

type Make = (o: SGD) => s.StepLR
const makers: Record<string, Make> = {
  StepLR: (o) => new s.StepLR(o, 2),
  MultiStepLR: (o) => new s.MultiStepLR(o, [1, 2]) as never,
  LambdaLR: (o) => new s.LambdaLR(o, () => 1) as never,
  ExponentialLR: (o) => new s.ExponentialLR(o, 0.5) as never,
  ConstantLR: (o) => new s.ConstantLR(o) as never,
  LinearLR: (o) => new s.LinearLR(o) as never,
  CosineAnnealingLR: (o) => new s.CosineAnnealingLR(o, 3) as never,
  CosineAnnealingWarmRestarts: (o) => new s.CosineAnnealingWarmRestarts(o, 3) as never,
  OneCycleLR: (o) => new s.OneCycleLR(o, 1, { totalSteps: 9 }) as never,
  ReduceLROnPlateau: (o) => new s.ReduceLROnPlateau(o) as never,
  SequentialLR: (o) => new s.SequentialLR(o, [new s.StepLR(o, 1)], []) as never,
  ChainedScheduler: (o) => new s.ChainedScheduler([new s.StepLR(o, 1)]) as never,
}

/** Values, by key, that no scheduler saves. */
const wrong: Record<string, unknown[]> = {
  step_size: [nan, -1, null],
  gamma: [nan, null],
  milestones: [{ a: 1 }, { 3: nan }, { '-1': 1 }, [1]],
  factor: [nan, -1, 2, null],
  start_factor: [nan, 0, null],
  end_factor: [nan, 2, null],
  total_iters: [nan, -1, null],
  T_max: [nan, -1, null],
  T_0: [nan, 0, 1.5],
  T_i: [nan, 0],
  T_mult: [nan, 0],
  T_cur: [nan, null],
  eta_min: [nan, -1, null],
  total_steps: [nan, 0, null],
  cycle_momentum: [null, 1],
  mode: ['x'],
  threshold_mode: ['x'],
  patience: [nan, -1, null],
  threshold: [nan, -1],
  cooldown: [nan, -1],
  min_lrs: [[nan], [-1], []],
  eps: [nan, -1],
  best: [nan, 'low'],
  num_bad_epochs: [nan, 0.5],
  cooldown_counter: [nan, -1],
  base_lrs: [[nan], [-1], []],
  last_epoch: [nan, -2, null],
  _step_count: [nan, 0.5],
  _last_lr: [[nan], [], null],
  _milestones: [[nan], null],
  _schedulers: [null, []],
  surplus: [1],
}

test.each(Object.keys(makers))('%s refuses each wrong value of its state', (name) => {
  const scheduler = makers[name](optimizer())
  const before = scheduler.stateDict()
  // With no milestones, any list is one of none.
  for (const key of [...Object.keys(before), 'surplus'])
    for (const value of wrong[key])
      if (name !== 'SequentialLR' || key !== '_milestones' || value === null)
        expect(() => scheduler.loadStateDict({ ...before, [key]: value })).toThrow(
          expect.objectContaining({
            code: 'data.malformed',
            message: expect.stringContaining(`"${key}"`),
          }),
        )
  expect(scheduler.stateDict()).toEqual(before)
  // What PyTorch saves besides is no surplus.
  scheduler.loadStateDict({ ...before, verbose: false, _get_lr_called_within_step: false })
})

test('OneCycleLR goes by the total that it loads', () => {
  const [short, long] = [9, 100].map(
    (totalSteps) => new s.OneCycleLR(optimizer(), 1, { totalSteps }),
  )
  short.loadStateDict(long.stateDict())
  for (const scheduler of [short, long]) scheduler.step(20)
  expect(short.getLastLr()).toEqual(long.getLastLr())
})

describe('a step that fails', () => {
  test('leaves a chain and its optimizer as they were', () => {
    const o = optimizer()
    const parts = [new s.ExponentialLR(o, 0.5), new s.LambdaLR(o, (e) => (e ? nan : 1))]
    for (const whole of [
      new s.ChainedScheduler(parts),
      new s.ChainedScheduler([new s.ChainedScheduler([parts[0]]), parts[1]]),
      new s.ChainedScheduler([new s.OneCycleLR(o, 1, { totalSteps: 9 }), parts[1]]),
      new s.SequentialLR(o, [parts[1], parts[0]] as never, [3]),
    ]) {
      const before = structuredClone([whole.stateDict(), o.paramGroups[0].lr])
      const { momentum } = o.paramGroups[0]
      expect(() => whole.step()).toThrow(/^LambdaLR: what lambda returns/)
      expect([whole.stateDict(), o.paramGroups[0].lr]).toEqual(before)
      expect(o.paramGroups[0].momentum).toBe(momentum)
    }
  })

  test.each([
    ['an epoch below 0', {}, -5, /^StepLR: epoch must be a whole number from 0 up .*, got -5/],
    ['a loss', {}, 1.7, /^StepLR: epoch must be .* \(a loss is for ReduceLROnPlateau\), got 1.7/],
    ['no stepSize', { stepSize: null }, undefined, /^StepLR: stepSize must be a whole/],
    ['no gamma', { gamma: null }, undefined, /^StepLR: gamma must be a number, got null/],
    ['no baseLrs', { baseLrs: null }, undefined, /^StepLR: baseLrs must be a list of 1/],
    ['no optimizer', { optimizer: null }, undefined, /^StepLR: optimizer must be an optimizer/],
  ])('throws an error that says why: %s', (_, change, epoch, text) => {
    const o = optimizer()
    const scheduler = Object.assign(new s.StepLR(o, 1), change)
    expect(() => scheduler.step(epoch)).toThrow(text)
    expect(o.paramGroups[0].lr).toBe(1)
  })

  test.each(['SequentialLR', 'ChainedScheduler'])(
    'throws an error that names epoch when %s gets one',
    (name) => {
      const scheduler = makers[name](optimizer())
      expect(() => scheduler.step(3)).toThrow(new RegExp(`^${name}.step: epoch must be left out`))
      expect(scheduler.stateDict()).toEqual(makers[name](optimizer()).stateDict())
    },
  )
})
