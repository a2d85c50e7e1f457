import { expect, test } from 'vitest'
import { noTimes } from '../../../src/graph/plan/step-program.ts'
import { StepClock } from '../../../src/graph/run/step-clock.ts'

// Where a step's time goes, on a clock that the test moves.

function clockOf() {
  let nowMs = 100
  const clock = new StepClock(() => nowMs)
  clock.begin()
  const pass = (ms: number) => {
    nowMs += ms
  }
  return { clock, pass }
}

test('each moment counts once, for the first of the parts that overlap', () => {
  const { clock, pass } = clockOf()
  const leaveBackward = clock.enter('backward')
  pass(10)
  const leaveWire = clock.enter('wire')
  pass(5)
  leaveBackward()
  pass(3)
  const leaveWait = clock.enter('wait')
  const leaveOptimizer = clock.enter('optimizer')
  pass(2)
  leaveWire()
  pass(7)
  leaveOptimizer()
  pass(11)
  leaveWait()
  pass(1)
  expect(clock.read()).toEqual({ ...noTimes, backward: 15, wire: 5, optimizer: 8, wait: 11 })
  clock.begin()
  pass(4)
  expect(clock.read()).toMatchObject({ optimizer: 4, wait: 0 })
})

test('an exchange waits until the neighbours have begun it, and is on the wire from then on', async () => {
  const { clock, pass } = clockOf()
  await clock.exchange(async (onAllBegun) => {
    pass(6)
    onAllBegun()
    pass(9)
  })
  expect(clock.read()).toMatchObject({ wait: 6, wire: 9 })
  const failing = clock.exchange(async () => {
    pass(2)
    throw new Error('lost')
  })
  await expect(failing).rejects.toThrow('lost')
  pass(1)
  expect(clock.read()).toMatchObject({ wait: 8, wire: 9, optimizer: 1 })
})
