import { describe, expect, test } from 'vitest'
import * as schedules from '../../../src/entries/optim/lr-scheduler.ts'
import type {
  AnyScheduler,
  LRScheduler,
  Schedulable,
} from '../../../src/optim/lr-scheduler/scheduler.ts'
import type { ParamGroup } from '../../../src/optim/settings.ts'
import { TabringError } from '../../../src/util/errors.ts'
import golden from '../../golden/optim.json'
import { type GoldenTensor, valuesOf } from '../../support/golden.ts'

// Learning rates, and momentum where it is cycled, over 50 steps against PyTorch's (tests/golden/optim.py), to 1e-12.

type Group = ParamGroup & { momentum?: number; betas?: readonly [number, number] }
type Plateau = schedules.ReduceLROnPlateau

const s = schedules

/** The golden cases by name. */
const makers: Record<string, (o: Schedulable) => AnyScheduler | Plateau> = {
  StepLR: (o) => new s.StepLR(o, 7, { gamma: 0.3 }),
  MultiStepLR: (o) => new s.MultiStepLR(o, [5, 12, 12, 40], { gamma: 0.5 }),
  ExponentialLR: (o) => new s.ExponentialLR(o, 0.93),
  ConstantLR: (o) => new s.ConstantLR(o, { factor: 0.25, totalIters: 6 }),
  LinearLR: (o) => new s.LinearLR(o, { startFactor: 0.1, endFactor: 1, totalIters: 10 }),
  'LinearLR, down': (o) => new s.LinearLR(o, { startFactor: 1, endFactor: 0.05, totalIters: 33 }),
  CosineAnnealingLR: (o) => new s.CosineAnnealingLR(o, 60, { etaMin: 1e-3 }),
  'CosineAnnealingLR, several': (o) => new s.CosineAnnealingLR(o, 11, { etaMin: 1e-4 }),
  CosineAnnealingWarmRestarts: (o) => new s.CosineAnnealingWarmRestarts(o, 7, { etaMin: 1e-3 }),
  'CosineAnnealingWarmRestarts, longer': (o) =>
    new s.CosineAnnealingWarmRestarts(o, 5, { tMult: 2 }),
  OneCycleLR: (o) => new s.OneCycleLR(o, 0.2, { totalSteps: 50 }),
  'OneCycleLR, three phases, linear': (o) =>
    new s.OneCycleLR(o, [0.2, 0.05], {
      totalSteps: 50,
      threePhase: true,
      annealStrategy: 'linear',
      divFactor: 10,
      pctStart: 0.25,
    }),
  'OneCycleLR, beta': (o) =>
    new s.OneCycleLR(o, 0.2, { epochs: 6, stepsPerEpoch: 10, baseMomentum: 0.8 }),
  LambdaLR: (o) => new s.LambdaLR(o, [(epoch) => 1 / (1 + epoch), (epoch) => 0.95 ** epoch]),
  SequentialLR: (o) =>
    new s.SequentialLR(
      o,
      [
        new s.LinearLR(o, { startFactor: 0.1, totalIters: 8 }),
        new s.CosineAnnealingLR(o, 30),
        new s.ExponentialLR(o, 0.9),
      ],
      [8, 35],
    ),
  ChainedScheduler: (o) =>
    new s.ChainedScheduler([
      new s.ConstantLR(o, { factor: 0.1, totalIters: 4 }),
      new s.ExponentialLR(o, 0.9),
    ]),
  ReduceLROnPlateau: (o) => new s.ReduceLROnPlateau(o, { patience: 3, cooldown: 2, factor: 0.5 }),
  'ReduceLROnPlateau, max, absolute': (o) =>
    new s.ReduceLROnPlateau(o, {
      mode: 'max',
      patience: 2,
      threshold: 0.01,
      thresholdMode: 'abs',
      minLr: [0.01, 0.005],
    }),
}

function groupsFor(name: string): { paramGroups: Group[] } {
  const more = () => (name.includes('beta') ? { betas: [0.9, 0.999] as const } : { momentum: 0.9 })
  return {
    paramGroups: [
      { params: [], lr: 0.1, ...more() },
      { params: [], lr: 0.02, ...more() },
    ],
  }
}

const advance = (scheduler: AnyScheduler | Plateau, step: number) => {
  if (scheduler instanceof s.ReduceLROnPlateau) scheduler.step(golden.metrics[step])
  else scheduler.step()
}

const rowOf = ({ paramGroups: [first, second] }: { paramGroups: Group[] }) => [
  first.lr,
  second.lr,
  first.momentum ?? first.betas![0],
]

describe('schedules against PyTorch', () => {
  test.each(golden.schedules.map(({ name }) => name))('%s', (name) => {
    const found = golden.schedules.find((one) => one.name === name)!
    const expected = valuesOf(found.rows as GoldenTensor)
    const optimizer = groupsFor(name)
    const scheduler = makers[name](optimizer)
    let largest = 0
    for (let step = 0; step < 50; step++) {
      rowOf(optimizer).forEach((value, i) => {
        largest = Math.max(largest, Math.abs(value - expected[3 * step + i]))
      })
      advance(scheduler, step)
    }
    expect(largest).toBeLessThan(1e-12)
  })

  test.each(Object.keys(makers))(
    '%s continues from its state as an uninterrupted one does',
    (name) => {
      const whole = groupsFor(name)
      const uninterrupted = makers[name](whole)
      const before = groupsFor(name)
      const first = makers[name](before)
      for (let step = 0; step < 17; step++) {
        advance(uninterrupted, step)
        advance(first, step)
      }
      const after = groupsFor(name)
      const second = makers[name](after)
      second.loadStateDict(JSON.parse(JSON.stringify(first.stateDict())))
      before.paramGroups.forEach((group, i) => {
        Object.assign(after.paramGroups[i], group)
      })
      for (let step = 17; step < 40; step++) {
        advance(uninterrupted, step)
        advance(second, step)
        expect(rowOf(after)).toEqual(rowOf(whole))
      }
      expect(second.stateDict()).toEqual(uninterrupted.stateDict())
    },
  )
})

test('states have the keys that PyTorch gives them', () => {
  const scheduler = new s.CosineAnnealingLR(groupsFor(''), 10)
  expect(Object.keys(scheduler.stateDict()).sort()).toEqual(
    ['T_max', '_last_lr', '_step_count', 'base_lrs', 'eta_min', 'last_epoch'].sort(),
  )
})

test('CosineAnnealingWarmRestarts has at a given epoch the rates to which its steps lead', () => {
  for (const name of ['CosineAnnealingWarmRestarts', 'CosineAnnealingWarmRestarts, longer']) {
    const [stepped, given] = [groupsFor(name), groupsFor(name)]
    const [first, second] = [stepped, given].map((one) => makers[name](one) as LRScheduler)
    for (let epoch = 1; epoch < 40; epoch++) {
      first.step()
      second.step(epoch)
      for (const [i, { lr }] of given.paramGroups.entries())
        expect(lr).toBeCloseTo(stepped.paramGroups[i].lr, 12)
    }
  }
})

test('ReduceLROnPlateau keeps a rate that would fall by eps only', () => {
  for (const [eps, rate] of [
    [0.25, 0.5],
    [0.24, 0.25],
  ] as const) {
    const optimizer = { paramGroups: [{ params: [], lr: 0.5 }] }
    const scheduler = new s.ReduceLROnPlateau(optimizer, { factor: 0.5, patience: 0, eps })
    for (const loss of [1, 1]) scheduler.step(loss)
    expect(optimizer.paramGroups[0]!.lr).toBe(rate)
  }
})

test('bad options are refused by name', () => {
  const optimizer = groupsFor('')
  expect(() => new s.StepLR(optimizer, 0)).toThrow(
    /StepLR: stepSize must be a whole number above 0/,
  )
  expect(() => new s.StepLR(optimizer, 10, 0.1 as never)).toThrow('Write { gamma: 0.1 }.')
  expect(() => new s.ReduceLROnPlateau(optimizer, 'min' as never)).toThrow('Write { name: value }.')
  expect(() => new s.OneCycleLR(optimizer, [1], { totalSteps: 5 })).toThrow(
    /OneCycleLR: maxLr must be one value, or one for each of 2 groups, got 1/,
  )
  expect(() => new s.ReduceLROnPlateau(optimizer, { factor: 1 })).toThrow(
    /factor must be from 0 to below 1/,
  )
  const scheduler = new s.OneCycleLR(optimizer, 1, { totalSteps: 2 })
  for (let step = 0; step < 2; step++) scheduler.step()
  expect(() => scheduler.step()).toThrow(/OneCycleLR.step: step 3 of 2. Raise totalSteps/)
  expect(() => new s.SequentialLR(optimizer, [scheduler], [3])).toThrow(/one fewer than the 1/)
})

test('SequentialLR asks for the list of schedulers when it gets options', () => {
  const optimizer = { paramGroups: [{ params: [], lr: 0.1 }] }
  const options = { schedulers: [], milestones: [] }
  expect(() => new s.SequentialLR(optimizer, options as never, undefined as never)).toThrow(
    'SequentialLR: schedulers must be a list of schedulers, got an object with schedulers, milestones. Write new SequentialLR(optimizer, [first, second], [milestone]).',
  )
  const first = new s.ExponentialLR(optimizer, 0.9)
  expect(() => new s.SequentialLR(optimizer, [first], undefined as never)).toThrow(
    'SequentialLR: milestones must be a list of epochs, got undefined.',
  )
})

// Required arguments, which JavaScript does not ask for.
const incomplete: [missing: string, make: (o: Schedulable) => unknown][] = [
  ['optimizer', () => new s.StepLR(undefined as never, 1)],
  ['optimizer', () => new s.ReduceLROnPlateau(undefined as never)],
  ['stepSize', (o) => new s.StepLR(o, undefined as never)],
  ['stepSize', (o) => new s.StepLR(o, {} as never)],
  ['milestones', (o) => new s.MultiStepLR(o, {} as never)],
  ['gamma', (o) => new s.ExponentialLR(o, {} as never)],
  ['lambda', (o) => new s.LambdaLR(o, undefined as never)],
  ['tMax', (o) => new s.CosineAnnealingLR(o, {} as never)],
  ['t0', (o) => new s.CosineAnnealingWarmRestarts(o, {} as never)],
  ['maxLr', (o) => new s.OneCycleLR(o, { totalSteps: 4 } as never)],
  ['new StepLR\\(optimizer, stepSize, ', (o) => new s.StepLR(o, { stepSize: 4 } as never)],
  ['options \\(gamma\\)', (o) => new s.StepLR(o, 4, 0.1 as never)],
  ['totalSteps', (o) => new s.OneCycleLR(o, 1)],
  ['schedulers', (o) => new s.SequentialLR(o, undefined as never, [])],
  ['schedulers', () => new s.ChainedScheduler(undefined as never)],
]
test('a scheduler changes nothing when its function returns no learning rate', () => {
  for (const wrong of [Number.NaN, Number.POSITIVE_INFINITY, '1', null, undefined]) {
    const [group] = groupsFor('').paramGroups
    const scheduler = new s.LambdaLR({ paramGroups: [group] }, (epoch) =>
      epoch === 2 ? (wrong as number) : 0.5 ** epoch,
    )
    scheduler.step()
    const before = { state: scheduler.stateDict(), lr: group.lr }
    expect(() => scheduler.step()).toThrow(/LambdaLR: what lambda returns must be a number/)
    expect({ state: scheduler.stateDict(), lr: group.lr }).toEqual(before)
  }
})

test('LambdaLR leaves a group alone that joins later, as PyTorch does', () => {
  const [group] = groupsFor('').paramGroups
  const late = { ...group, lr: 7 }
  const paramGroups = [group]
  const scheduler = new s.LambdaLR({ paramGroups }, () => 0.5)
  paramGroups.push(late)
  scheduler.step()
  expect(late.lr).toBe(7)
})

test('LinearLR ends at 0, not below, when it ends at 0', () => {
  const [group] = groupsFor('').paramGroups
  const scheduler = new s.LinearLR(
    { paramGroups: [group] },
    { startFactor: 0.7, endFactor: 0, totalIters: 3 },
  )
  for (let step = 0; step < 3; step++) scheduler.step()
  expect(group.lr).toBe(0)
})

test.each(incomplete)('a scheduler names %s when it is missing', (missing, make) => {
  const optimizer = { paramGroups: [{ params: [], lr: 0.1, momentum: 0.9 }] }
  const thrown = expect(() => make(optimizer))
  thrown.toThrow(TabringError)
  thrown.toThrow(new RegExp(`^\\w+: .*${missing}`))
})
