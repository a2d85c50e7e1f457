import type { PhaseRange, PhaseShares } from '../plan/phases.ts'

/** More device time in one submit keeps the page's own drawing waiting, and on some systems brings the watchdog. units: ms. */
const longestSubmitMs = 100

/**
 * Where to cut a program's dispatches into submits of at most about 100 ms of device time each; none for most programs.
 *
 * `deviceMs`: what each phase took. Dispatches of one phase count equally, so a single long one may pass the limit.
 */
export function submitCuts(ranges: readonly PhaseRange[], deviceMs: PhaseShares): number[] {
  const lengths = { forward: 0, backward: 0, optimizer: 0 }
  for (const { phase, start, end } of ranges) lengths[phase] += end - start
  const total = deviceMs.forward + deviceMs.backward + deviceMs.optimizer
  const count = Math.ceil(total / longestSubmitMs)
  const cuts: number[] = []
  let passedMs = 0
  for (const { phase, start, end } of ranges) {
    for (let i = start; i < end; i++) {
      const isNextPart = passedMs >= ((cuts.length + 1) * total) / count
      if (i > 0 && isNextPart && cuts.length + 1 < count) cuts.push(i)
      passedMs += deviceMs[phase] / lengths[phase]
    }
  }
  return cuts
}
