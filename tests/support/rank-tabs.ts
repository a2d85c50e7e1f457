import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, BrowserContext, Page } from 'playwright'
import { ensureBuilt } from '../../node/build.ts'
import { iceWithoutRoutePermissions } from '../../node/chromium.ts'
import { type Served, serve } from '../../node/serve.ts'
import { formatFragment, newRoomLink } from '../../src/peer/room/secret.ts'
import type { TrainConfigInput } from '../../src/trainer/settings/config.ts'
import type { RunEvent, RunResult } from '../../src/worker/api.ts'
import { drawnSplits, idxFolder } from './idx-files.ts'
import { launchBrowser } from './launch-browser.ts'

export type Done =
  | { ok: true; rank: number; result: RunResult; bytesSent: number; links: string[] }
  | { ok: false; rank: number | null; code: string; message: string }

/** A real tab that is a rank, and what it has said. */
export interface RankTab {
  page: Page
  events: RunEvent[]
  /** What the tab and the signaling server have sent each other. */
  frames: (string | Buffer)[]
  /** Resolves with the tab's end and when it came, `performance.now()` of this process. */
  done: Promise<Done & { atMs: number }>
  /** Resolves at the first event that `matches`. */
  saw(matches: (event: RunEvent) => boolean): Promise<RunEvent>
}

/** What `data` of a tab's settings says to train on the digits that are served: far fewer than a page draws by default. */
export const dataOfTabs = '/data/'

/** As in browsers whose data channels cannot be transferred: for `initScript`. The page pumps them then. */
export const refuseChannels = () => {
  const original = MessagePort.prototype.postMessage as (...args: unknown[]) => void
  MessagePort.prototype.postMessage = function (this: MessagePort, ...args: unknown[]) {
    if (args[0] instanceof RTCDataChannel) throw new DOMException('refused', 'DataCloneError')
    original.apply(this, args)
  }
}

/** As where a policy takes WebRTC away: for `initScript`. */
export const withoutWebRtc = () => {
  Reflect.deleteProperty(globalThis, 'RTCPeerConnection')
}

/** A built server and a browser for rank tabs. */
export class RankTabs {
  private readonly contexts: BrowserContext[] = []
  private constructor(
    private readonly served: Served,
    readonly browser: Browser,
    private readonly folder: string,
    private readonly device: string,
  ) {}

  /** Serves the built page, and a few drawn digits as MNIST files at `dataOfTabs`; for tabs of `browser`, which `stop` closes. `device`: of each tab. */
  static async start(
    { train = 256, test = 50, device = 'auto' } = {},
    launch: () => Promise<Browser> = launchBrowser,
  ): Promise<RankTabs> {
    const folder = await mkdtemp(join(tmpdir(), 'tabring-digits-'))
    for (const [name, bytes] of Object.entries(idxFolder(drawnSplits({ train, test }))))
      await writeFile(join(folder, name), bytes)
    const mounts = { [dataOfTabs]: folder }
    const served = await serve({
      root: await ensureBuilt(),
      port: 0,
      mounts,
      signaling: { relay: true },
    })
    const browser = await launch()
    return new RankTabs(served, browser, folder, device)
  }

  /** Opens `ranks` tabs in one room; for ports they share a browser context, as tabs of one person do. */
  async open(
    ranks: number,
    transport: 'fallback' | 'webrtc' | 'port' | 'relay',
    config: TrainConfigInput,
    /** Runs in every page before its own scripts; or one for each, by rank. */
    initScript?: (() => void) | readonly ((() => void) | undefined)[],
    /** Opens each tab, where they are not to be in separate contexts. */
    newPage?: () => Promise<Page>,
  ): Promise<RankTab[]> {
    const fragment = formatFragment(newRoomLink())
    const shared = transport === 'port' ? await this.context() : undefined
    const tabs: RankTab[] = []
    for (let i = 0; i < ranks; i++) {
      const page = newPage ? await newPage() : await (shared ?? (await this.context())).newPage()
      const script = typeof initScript === 'function' ? initScript : initScript?.[i]
      if (script) await page.addInitScript(script)
      const tab = await watchTab(page)
      const query = new URLSearchParams({
        role: i === 0 ? 'host' : 'join',
        ranks: String(ranks),
        transport,
        device: this.device,
        // Tabs of different contexts do not see each other, and each would take all cores.
        numThreads: '1',
        ...(i === 0 ? { config: JSON.stringify(config) } : {}),
      })
      const welcomed = new Promise<void>((resolve) => {
        tab.page.on('websocket', (socket) =>
          socket.on('framereceived', ({ payload }) => {
            if (String(payload).includes('"welcome"')) resolve()
          }),
        )
      })
      await tab.page.goto(`${this.served.localUrl}tab.html?${query}${fragment}`)
      await Promise.race([welcomed, tab.done])
      tabs.push(tab)
    }
    return tabs
  }

  async closeTabs(): Promise<void> {
    await Promise.all(this.contexts.splice(0).map((context) => context.close()))
  }

  async stop(): Promise<void> {
    await this.browser.close()
    await this.served.close()
    await rm(this.folder, { recursive: true, force: true })
  }

  private async context(): Promise<BrowserContext> {
    const context = await this.browser.newContext()
    await context.grantPermissions(iceWithoutRoutePermissions)
    this.contexts.push(context)
    return context
  }
}

async function watchTab(page: Page): Promise<RankTab> {
  const events: RunEvent[] = []
  const frames: (string | Buffer)[] = []
  page.on('websocket', (socket) => {
    socket.on('framesent', ({ payload }) => frames.push(payload))
    socket.on('framereceived', ({ payload }) => frames.push(payload))
  })
  const waiting: { matches: (event: RunEvent) => boolean; resolve: (event: RunEvent) => void }[] =
    []
  let finish!: (done: Done & { atMs: number }) => void
  const done = new Promise<Done & { atMs: number }>((resolve) => {
    finish = resolve
  })
  await page.exposeFunction('__tabringEvent', (json: string) => {
    const event = JSON.parse(json) as RunEvent
    events.push(event)
    for (const { matches, resolve } of waiting) if (matches(event)) resolve(event)
  })
  await page.exposeFunction('__tabringDone', (json: string) =>
    finish({ ...(JSON.parse(json) as Done), atMs: performance.now() }),
  )
  return {
    page,
    events,
    frames,
    done,
    saw: (matches) =>
      new Promise((resolve) => {
        const known = events.find(matches)
        if (known) resolve(known)
        else waiting.push({ matches, resolve })
      }),
  }
}
