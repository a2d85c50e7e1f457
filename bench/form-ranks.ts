import type { BrowserContext, Page } from 'playwright'
import { iceWithoutRoutePermissions } from '../node/chromium.ts'
import type { InitProcessGroupOptions } from '../src/distributed/group/form-group.ts'
import { newRoomUrl } from '../src/peer/room/room-url.ts'
import type { Host } from './host.ts'
import type { RankWorker } from './ring/rank-worker.ts'

/** The backends of `initProcessGroup` that a bench can name. */
export const measuredBackends = ['webrtc', 'broadcast', 'local', 'relay'] as const
export type MeasuredBackend = (typeof measuredBackends)[number]

/** The ranks of one group: each a worker of a tab. */
export interface Ranks {
  readonly size: number
  /** Asks all ranks the same at once. */
  ask<Asked extends 'time' | 'hops' | 'ping' | 'raw' | 'links'>(
    what: Asked,
    ...task: Parameters<RankWorker[Asked]>
  ): Promise<Awaited<ReturnType<RankWorker[Asked]>>[]>
  close(): Promise<void>
}

/**
 * Forms a group by `initProcessGroup`, as a user's program does: of tabs with a browser context each over WebRTC or the relay, of tabs of one context by
 * `broadcast`, of workers of one tab by `local`.
 */
export async function formRanks(
  { browser, url }: Host,
  worldSize: number,
  backend: MeasuredBackend,
): Promise<Ranks> {
  const contexts: BrowserContext[] = []
  const newContext = async () => {
    const context = await browser.newContext()
    await context.grantPermissions(iceWithoutRoutePermissions)
    contexts.push(context)
    return context
  }
  const openTab = async (context: BrowserContext) => {
    const page = await context.newPage()
    await page.goto(`${url}tab.html?lanes=1`)
    await page.waitForFunction(() => window.ringTab !== undefined)
    return page
  }
  const places: { page: Page; at: number }[] = []
  const common = backend === 'broadcast' ? await newContext() : undefined
  const only = backend === 'local' ? await openTab(await newContext()) : undefined
  for (let rank = 0; rank < worldSize; rank++) {
    const page = only ?? (await openTab(common ?? (await newContext())))
    if (only && rank > 0) await only.evaluate(() => window.ringTab.addRank())
    places.push({ page, at: only ? rank : 0 })
  }
  const isByServer = backend === 'webrtc' || backend === 'relay'
  const initMethod = isByServer ? newRoomUrl(url) : 'broadcast:collectives'
  await Promise.all(
    places.map(({ page, at }, rank) =>
      page.evaluate(
        ([index, options]: [number, InitProcessGroupOptions]) =>
          window.ringTab.ranks[index].init(options),
        [at, { backend, initMethod, rank, worldSize }] as [number, InitProcessGroupOptions],
      ),
    ),
  )
  return {
    size: worldSize,
    ask: (what, ...task) =>
      Promise.all(
        places.map(({ page, at }) =>
          page.evaluate(
            ([index, name, given]) => {
              const rank = window.ringTab.ranks[index] as unknown as Record<
                string,
                (...all: unknown[]) => Promise<unknown>
              >
              return rank[name](...given)
            },
            [at, what as string, task as unknown[]] as const,
          ),
        ),
      ) as never,
    async close() {
      for (const context of contexts) await context.close()
    },
  }
}
