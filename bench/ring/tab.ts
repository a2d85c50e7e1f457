import { transferOf } from '../../src/peer/link/channel-transport.ts'
import type { RoomLink } from '../../src/peer/room/secret.ts'
import { openLocalPorts } from '../../src/peer/tab/local-ports.ts'
import { SignalClient, signalUrl } from '../../src/peer/tab/signal.ts'
import { formLinks } from '../../src/worker/page/connect.ts'
import { leaveOnPageHide } from '../../src/worker/page/leave-on-page-hide.ts'
import { RankWorker } from './rank-worker.ts'

/** One tab of the benches between tabs: joins the room as every rank of a training does, or has workers that form a group without it. */

const worker = new RankWorker()
let client: SignalClient
let running: Promise<object> | undefined
let seen: (count: number) => void = () => undefined

const tab = {
  /** `transport`: over MessagePorts where tabs share a browser context, WebRTC, or the server's relay. */
  async join(link: RoomLink, name: string, transport: 'webrtc' | 'port' | 'relay'): Promise<void> {
    const ports = transport === 'port' ? await openLocalPorts() : null
    client = new SignalClient({
      url: signalUrl(location),
      link,
      info: { name, adapter: null, hostTag: ports?.hostTag ?? '', hidden: false, transport },
      WebSocket,
    })
    client.on('lobby', ({ members }) => seen(members.length))
    client.on('abort', ({ text }) => worker.fail(new Error(text)))
    client.on('lost', (error) => worker.fail(error))
    client.on('assign', (assignment) => {
      const { epoch, rank, worldSize } = assignment
      formLinks({
        client,
        assignment,
        ports,
        addLink: (_, peerRank, transport, lane) =>
          worker.tell({ add: { peerRank, transport, lane } }, transferOf(transport)),
      }).connected.catch(worker.fail)
      client.on('start', () => worker.tell({ begin: { epoch, rank, worldSize } }))
      running = worker.isReady()
    })
    leaveOnPageHide(client)
    await client.open()
  },
  /** Seals the room once `count` members are in it. */
  async start(count: number): Promise<void> {
    const full = new Promise<void>((resolve) => {
      seen = (present) => {
        if (present >= count) resolve()
      }
      seen(client.lobby?.members.length ?? 0)
    })
    await Promise.race([full, worker.failed])
    client.start(null)
  },
  /** Resolves when the links are up. */
  async ready(): Promise<void> {
    while (!running) await new Promise((resolve) => setTimeout(resolve, 20))
    await running
  },
  /** The tab's ranks: the first one joins rooms. Adds one. */
  addRank: () => ranks.push(new RankWorker()),
}
const ranks = [worker]
const ringTab = Object.assign(tab, { ranks })

declare global {
  interface Window {
    ringTab: typeof ringTab
  }
}
window.ringTab = ringTab
