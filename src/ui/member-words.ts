import type { LobbyMember, Measured } from '../peer/messages.ts'
import { formatMs, formatNumber } from './format.ts'

/** One measured number of a member, and what it means. */
export interface Fact {
  readonly text: string
  readonly title: string
}

/** How fast the member's device is. */
export function speedOf({ megaflops }: Measured): Fact | null {
  if (megaflops === undefined) return null
  return {
    text: `${formatNumber(megaflops / 1000)} GFLOP/s`,
    title: 'Its device in one product of two 512 × 512 matrices, measured while nothing ran',
  }
}

/** How far the member is from those that it talks to: its neighbours in a run, else the server. */
export function roundTripOf({ serverUs, linkUs }: Measured): Fact | null {
  if (linkUs) {
    const [least, most] = linkUs.map((us) => us / 1000)
    const isOne = formatMs(least) === formatMs(most)
    return {
      text: `${isOne ? formatMs(most) : `${formatNumber(least)} to ${formatMs(most)}`} to neighbours`,
      title: 'Round trip over its links in this run, behind the gradients that are on their way',
    }
  }
  if (serverUs === undefined) return null
  return {
    text: `${formatMs(serverUs / 1000)} to the server`,
    title: 'Round trip to the signaling server; links between tabs come with a run',
  }
}

/** For each member, the first one of its tab where that is another: the ranks of one tab share a browser and a device. */
export function tabMates(members: readonly LobbyMember[]): (LobbyMember | null)[] {
  return members.map((member) => {
    const first = member.tab ? members.find(({ tab }) => tab === member.tab) : undefined
    return first && first !== member ? first : null
  })
}
