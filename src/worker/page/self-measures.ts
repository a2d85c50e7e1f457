import type { Lobby, Measured, MemberInfo } from '../../peer/room/messages.ts'
import type { LobbyLinks } from '../../peer/tab/lobby-links.ts'
import type { LocalPorts } from '../../peer/tab/local-ports.ts'
import type { SignalClient, SignalEvents } from '../../peer/tab/signal.ts'
import { systemEnv } from '../../util/env.ts'
import { loadPart } from '../../util/load-part.ts'
import { Measures, type MeasuresOptions } from './measures.ts'

export interface SelfMeasuresOptions extends Pick<MeasuresOptions, 'speed' | 'linkRoundTrips'> {
  readonly client: SignalClient
  /** How the room knows this member. */
  readonly own: MemberInfo
  readonly ports: LocalPorts | null
  readonly isInRun: boolean
  readonly report: (measured: Measured) => void
  /** Called when a neighbour sent anything else. */
  readonly refuse: (error: unknown) => void
}

/**
 * What a member measures of itself while it is in a room, and the links that it needs for that between runs: those to its neighbours in the ring.
 * In a run the run's own links are measured.
 */
export class SelfMeasures {
  readonly #options: SelfMeasuresOptions
  readonly #measures: Measures
  /** Once this tab is not alone in its room. */
  #links: LobbyLinks | 'loading' | undefined
  /** What neighbours said before their code was here. */
  #earlyReaches: SignalEvents['reach'][] = []

  /** Begins at once. */
  constructor(options: SelfMeasuresOptions) {
    const { client, report, speed, linkRoundTrips, isInRun } = options
    this.#options = options
    this.#measures = new Measures({
      env: systemEnv,
      report,
      isAlone: () => (client.lobby?.members.length ?? 1) === 1,
      speed,
      serverRoundTrip: () => client.roundTrip(),
      linkRoundTrips,
    })
    this.#measures.begin()
    if (isInRun) this.#measures.runBegan()
    this.#link()
  }

  roomIs({ state, members }: Lobby): void {
    this.#measures.roomIs([state, ...members.map(({ id }) => id)].join())
    this.#link()
  }

  runBegan(): void {
    this.#measures.runBegan()
    this.#link()
  }

  runEnded(): void {
    this.#measures.runEnded()
    this.#link()
  }

  /** What a neighbour sent between runs. */
  receive(reach: SignalEvents['reach']): void {
    if (this.#links === 'loading') {
      this.#earlyReaches.push(reach)
      return
    }
    try {
      this.#links?.receive(reach.from, reach.data)
    } catch (thrown) {
      this.#options.refuse(thrown)
    }
  }

  /** Ends for good: nothing more is sent, and no link stays. */
  end(): void {
    this.#measures.end()
    this.#link()
  }

  #link(): void {
    const links = this.#links
    if (links === 'loading') return
    const lobby = this.#measures.isIdle ? this.#options.client.lobby : null
    if (!lobby) links?.close()
    else if (links) links.roomIs(lobby)
    else if (lobby.members.length > 1) void this.#load()
  }

  async #load(): Promise<void> {
    const { client, own, ports } = this.#options
    this.#links = 'loading'
    try {
      const { linkLobby } = await loadPart('Round trips', () => import('./lobby-ways.ts'))
      const report = (toNext: Measured['toNext']) => this.#measures.nextIs(toNext)
      this.#links = linkLobby({ client, own, ports, report })
    } catch {
      this.#links = undefined // the next change of the room tries again
      this.#earlyReaches = []
      return
    }
    this.#link()
    for (const reach of this.#earlyReaches.splice(0)) this.receive(reach)
  }
}
