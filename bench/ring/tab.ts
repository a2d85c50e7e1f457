import { transferOf } from '../../src/peer/channel-transport.ts'
import { openLocalPorts } from '../../src/peer/local-ports.ts'
import type { RoomLink } from '../../src/peer/secret.ts'
import { SignalClient, signalUrl } from '../../src/peer/signal.ts'
import { formLinks, leaveOnPageHide } from '../../src/worker/connect.ts'
import type {
  CollectiveTask,
  FromWorker,
  HopsTask,
  PingTask,
  RingTask,
  RingTimes,
  ToWorker,
} from './protocol.ts'

/** One tab of the ring's bench: joins the room as every rank does, and hands its channels to a worker that measures. */

const worker = new Worker(new URL('./ring.worker.ts', import.meta.url), { type: 'module' })
const tell = (message: ToWorker, transfer: Transferable[] = []) =>
  worker.postMessage(message, transfer)

let fail: (error: Error) => void
const failed = new Promise<never>((_, reject) => {
  fail = reject
})
failed.catch(() => undefined)

/** The worker's next word of this kind. */
function hear<T extends object>(isIt: (word: FromWorker) => T | undefined): Promise<T> {
  const heard = new Promise<T>((resolve) => {
    const listen = ({ data }: MessageEvent<FromWorker>) => {
      const word = isIt(data)
      if (!word) return
      worker.removeEventListener('message', listen as EventListener)
      resolve(word)
    }
    worker.addEventListener('message', listen as EventListener)
  })
  return Promise.race([heard, failed])
}
worker.addEventListener('message', ({ data }: MessageEvent<FromWorker>) => {
  if ('failed' in data) fail(new Error(data.failed))
})
worker.onerror = ({ message }) => fail(new Error(`worker: ${message}`))

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
    client.on('abort', ({ text }) => fail(new Error(text)))
    client.on('lost', (error) => fail(error))
    client.on('assign', (assignment) => {
      const { epoch, rank, worldSize } = assignment
      formLinks({
        client,
        assignment,
        ports,
        addLink: (_, peerRank, transport, lane) =>
          tell({ add: { peerRank, transport, lane } }, transferOf(transport)),
      }).connected.catch(fail)
      client.on('start', () => tell({ begin: { epoch, rank, worldSize } }))
      running = hear((word) => ('ready' in word ? word : undefined))
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
    await Promise.race([full, failed])
    client.start(null)
  },
  /** Resolves when the ring is up. */
  async ready(): Promise<void> {
    while (!running) await new Promise((resolve) => setTimeout(resolve, 20))
    await running
  },
  async measure(task: RingTask): Promise<RingTimes> {
    const measured = hear((word) => ('measured' in word ? word : undefined))
    tell({ measure: task })
    return (await measured).measured
  },
  time: (task: CollectiveTask): Promise<number[]> => timed({ time: task }),
  ping: (task: PingTask): Promise<number[]> => timed({ ping: task }),
  hops: (task: HopsTask): Promise<number[]> => timed({ hops: task }),
}
async function timed(order: ToWorker): Promise<number[]> {
  const heard = hear((word) => ('timed' in word ? word : undefined))
  tell(order)
  return (await heard).timed
}

export type RingTab = typeof tab
declare global {
  interface Window {
    ringTab: RingTab
  }
}
window.ringTab = tab
