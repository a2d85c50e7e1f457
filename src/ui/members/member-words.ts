import { ringEdges } from '../../peer/room/edges.ts'
import type { LobbyMember, Measured } from '../../peer/room/messages.ts'
import { canFallBack } from '../../peer/room/topology.ts'
import { formatMs, formatNumber } from '../parts/format.ts'

/** One measured number of a member, and what it means. */
export interface Fact {
  readonly text: string
  readonly title: string
  /** It stands in the way of a run. */
  readonly isTrouble?: boolean
}

/** How fast the member's device is. */
export function speedOf({ megaflops }: Measured): Fact | null {
  if (megaflops === undefined) return null
  return {
    text: `${formatNumber(megaflops / 1000)} GFLOP/s`,
    title: 'Speed of its device in a 512 × 512 matrix product, measured between runs',
  }
}

/** How far each member is from its neighbours in the ring, or where that is not known, from the server; by member. */
export function roundTrips(members: readonly LobbyMember[], hasRelay: boolean): Fact[][] {
  const facts = members.map((): Fact[] => [])
  for (const edge of ringEdges(members.length)) {
    const [from, to] = edge.map((index) => members[index])
    const { toNext } = from.measured ?? {}
    if (toNext?.id !== to.id) continue
    for (const [index, other] of [edge, [...edge].reverse()])
      facts[index].push(
        wayTo(members[other].name, other, toNext.us, hasRelay && canFallBack(from, to)),
      )
  }
  return facts.map((found, index) => {
    const { measured = {} } = members[index]
    const own = found.length > 0 && !measured.linkUs ? found : [roundTripOf(measured)]
    return own.filter((fact) => fact !== null)
  })
}

/** The round trip to one member, by the rank that it has if the run starts now; `us` is null where there is no way to it. */
function wayTo(name: string, rank: number, us: number | null, hasDetour: boolean): Fact {
  if (us !== null)
    return {
      text: `${formatMs(us / 1000)} to rank ${rank}`,
      title: `Round trip to ${name}, a neighbour in the ring: median of the last few`,
    }
  return hasDetour
    ? {
        text: `through the server to rank ${rank}`,
        title: 'The two tabs cannot reach each other directly',
      }
    : {
        text: `cannot reach ${name}`,
        title: 'The two tabs cannot reach each other: a run cannot start with both',
        isTrouble: true,
      }
}

/** In a run the round trips of all its links, else that to the server. */
function roundTripOf({ serverUs, linkUs }: Measured): Fact | null {
  if (linkUs) {
    const [min, max] = linkUs.map((us) => us / 1000)
    const isOne = formatMs(min) === formatMs(max)
    return {
      text: `${isOne ? formatMs(max) : `${formatNumber(min)} to ${formatMs(max)}`} to neighbours`,
      title: 'Round trip over its links in this run, after the gradients in flight',
    }
  }
  if (serverUs === undefined) return null
  return {
    text: `${formatMs(serverUs / 1000)} to the server`,
    title: 'Round trip to the server',
  }
}

/** For each member, the first one of its tab where that is another: the ranks of one tab share a browser and a device. */
export function tabMates(members: readonly LobbyMember[]): (LobbyMember | null)[] {
  return members.map((member) => {
    const first = member.tab ? members.find(({ tab }) => tab === member.tab) : undefined
    return first && first !== member ? first : null
  })
}
