import { sessionDefaults } from '../../../src/peer/session/session-config.ts'
import type { FaultPlan } from './fault-plan.ts'
import type { Scenario } from './scenario.ts'
import { stoodStill, type World } from './world.ts'

/** Which codes one fault alone may end in, where that is not any of these: what was lost on the way shows in several ways. */
const codes: Partial<Record<FaultPlan['kind'], readonly string[]>> = {
  abort: ['peer.aborted'],
  close: ['peer.lost'],
  leave: ['peer.lost'],
  'odd-call': ['peer.mismatch'],
}
const anyCode = ['peer.lost', 'peer.timeout', 'peer.protocol']

/** What a heartbeat sees, however long the deadline is. */
const silences: readonly string[] = ['crash', 'freeze', 'one-way']

/**
 * What ranks report as the cause, against what they may.
 *
 * Always: a rank that did not notice it reports what one that did reports. After one fault that leaves the ranks connected there is
 * one cause, but for those that noticed another before the first could have reached them, or as they left: ranks
 * that have left pass nothing on. After two faults, or where ranks are cut off, stand still or have gone, each side may
 * report its own.
 */
export function causeViolations(scenario: Scenario, world: World, hopMs: number): string[] {
  const { failures, fired } = world
  const all = [...failures].map(([rank, failure]) => ({ rank, ...failure }))
  const own = all.filter(({ isOwn }) => isOwn).sort((a, b) => a.atMs - b.atMs)
  const violations: string[] = []
  const [plan, second] = fired.keys()
  if (!plan)
    return all.map(({ rank, error }) => `rank ${rank} fails without a fault: ${error.message}`)
  if (plan.kind === 'corrupt' || second?.kind === 'corrupt') return []
  for (const { rank, isOwn, error } of all)
    if (!isOwn && !own.some((one) => one.error.message === error.message))
      violations.push(`rank ${rank} tells what no rank noticed: ${error.message}`)
  const canSleep = [...fired.keys()].filter(({ kind }) => kind === 'pause' || kind === 'jump')
  for (const { rank, error } of own)
    if (error.message.startsWith(stoodStill(rank)) && !canSleep.some((one) => one.rank === rank))
      violations.push(`rank ${rank} was never suspended: ${error.message}`)
  if (second) return violations
  const allowed = codes[plan.kind] ?? anyCode
  for (const { rank, error } of own)
    if (!allowed.includes(error.code))
      violations.push(`rank ${rank} took ${plan.kind} for ${error.code}: ${error.message}`)
  const [first] = own
  const cutOff = ['partition', 'pause', 'jump']
  const isApart = scenario.size === 2 || cutOff.includes(plan.kind) || !scenario.leavesTogether
  if (!first || isApart) return violations
  const lateMs = plan.kind === 'delay' || plan.kind === 'slow' ? 2 * plan.ms : 0
  const reachMs = scenario.size * hopMs + lateMs
  const { deadMs, pingMs } = sessionDefaults
  const injectedMs = fired.get(plan)!
  const silentMs = first.atMs - injectedMs
  // Before its HELLO a rank may be silent for longer; one that is under way when a link is cut never arrives.
  if (silences.includes(plan.kind) && plan.phase !== 'joining' && injectedMs > hopMs)
    if (silentMs > deadMs + 2 * pingMs + reachMs)
      violations.push(`${plan.kind} was noticed after ${silentMs} ms: ${first.error.message}`)
  for (const { rank, error, atMs } of own) {
    const isLeaving = atMs > (world.leavingMs.get(rank) ?? Number.POSITIVE_INFINITY)
    if (error.message !== first.error.message && atMs > first.atMs + reachMs && !isLeaving)
      violations.push(
        `rank ${rank} tells a cause of its own ${atMs - first.atMs} ms after rank ${first.rank} noticed the first: ${error.message}`,
      )
  }
  return violations
}
