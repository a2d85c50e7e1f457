import { afterAll, afterEach, beforeAll } from 'vitest'
import { dataOfTabs, RankTabs } from './rank-tabs.ts'

/** Four batches of 64 and a last one of 30, which leaves the second of three ranks 8 samples and the third none. */
export const samples = 4 * 64 + 30

let tabs: RankTabs

/** Serves the tabs to the tests of this file. */
export function useTrainTabs(): void {
  beforeAll(async () => {
    tabs = await RankTabs.start({ train: samples })
  })
  afterEach(() => tabs.closeTabs())
  afterAll(() => tabs.stop())
}

/** What each of the tabs ends with. */
export async function results(
  ranks: number,
  transport: Parameters<RankTabs['open']>[1],
  config: Parameters<RankTabs['open']>[2],
  initScript?: Parameters<RankTabs['open']>[3],
) {
  const opened = await tabs.open(ranks, transport, config, initScript)
  const ends = await Promise.all(opened.map((tab) => tab.done))
  return ends.map((end, i) => {
    if (!end.ok) throw new Error(`${end.code}: ${end.message}`)
    const losses = opened[i].events.flatMap((event) => (event.event === 'step' ? event.loss : []))
    return { ...end, losses, frames: opened[i].frames }
  })
}

/** Bytes that a tab and the server have sent each other. */
export const serverBytes = ({ frames }: Results[number]): number =>
  frames.reduce((sum, frame) => sum + Buffer.byteLength(frame), 0)

export const config = {
  data: dataOfTabs,
  steps: 12,
  seed: 7,
  batchSize: 64,
  bucketCapMb: 0.01,
  hashEvery: 5,
} as const
export type Results = Awaited<ReturnType<typeof results>>
