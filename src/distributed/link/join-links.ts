import type { GroupOptions } from '../../peer/collective/membership.ts'
import { type GroupConfig, ProcessGroup } from '../../peer/group/group.ts'
import { FaultyLink } from '../../peer/link/faulty-link.ts'
import type { Link } from '../../peer/link/link.ts'
import { type Env, systemEnv } from '../../util/env.ts'
import { messageOf, TabringError } from '../../util/errors.ts'
import { log } from '../../util/log.ts'
import { checkNumber, isCount } from '../../util/options.ts'
import { switchValue } from '../../util/switches.ts'

export interface JoinOptions {
  rank?: number
  worldSize?: number
  /** One membership of the group; ranks of different epochs do not talk. Default 0. */
  epoch?: number
  onspan?: GroupOptions['onspan']
  links: Map<number, Link>
  machines?: readonly number[]
  timeoutMs?: number | undefined
  helloMs: number | undefined
  onleft?: () => void
  /** Rejects when the group cannot be. */
  failed?: Promise<never>
  /** Called before a group that has not formed closes its links. */
  silence?: () => void
  /** For tests. */
  env?: Env
}

/** A group over links that are there. errors: those of `ProcessGroup.ready`. */
export async function joinLinks(options: JoinOptions): Promise<ProcessGroup> {
  const { rank, worldSize, epoch = 0, links, machines, timeoutMs } = options
  const { helloMs, onspan, onleft, failed, silence, env = systemEnv } = options
  checkPlace('initProcessGroup', rank, worldSize)
  const config: Partial<GroupConfig> = {
    ...(timeoutMs !== undefined && { deadlineMs: timeoutMs }),
    ...(helloMs !== undefined && { session: { helloMs } }),
  }
  const group = new ProcessGroup({
    rank: rank!,
    size: worldSize!,
    epoch,
    links: withFaults(links, rank!, env),
    env,
    machines,
    config,
    onspan,
    onleft,
  })
  try {
    await Promise.race([group.ready(), ...(failed ? [failed] : [])])
  } catch (error) {
    log(1, 'group', () => `epoch ${epoch}: rank ${rank} did not join: ${messageOf(error)}`)
    silence?.()
    group.destroy()
    throw error
  }
  log(1, 'group', () => `epoch ${epoch}: rank ${rank} of ${worldSize} has its neighbours`)
  return group
}

/** errors: `config.invalid` without a size, or for a rank outside of it. */
export function checkPlace(
  where: string,
  rank: number | undefined,
  worldSize: number | undefined,
): void {
  if (worldSize === undefined) {
    throw new TabringError(
      'config.invalid',
      `${where}: worldSize is missing. Pass the number of ranks, or use env://.`,
    )
  }
  checkNumber(where, 'worldSize', worldSize, isCount, 'a whole number of at least 1')
  const isRank = (value: number) => Number.isInteger(value) && value >= 0 && value < worldSize
  checkNumber(where, 'rank', rank, isRank, `from 0 to ${worldSize - 1}`)
}

/** The links with the faults that switches ask for: as they are, as a rule. */
function withFaults(links: Map<number, Link>, rank: number, env: Env): Map<number, Link> {
  const faults = {
    drop: switchValue('drop'),
    delayMs: switchValue('delayMs'),
    isStalled: switchValue('stallRank') === rank,
  }
  if (faults.drop === 0 && faults.delayMs === 0 && !faults.isStalled) return links
  const faulty = (link: Link): Link => new FaultyLink(link, faults, env)
  return new Map([...links].map(([peer, link]) => [peer, faulty(link)]))
}
