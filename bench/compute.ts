import type { CDPSession, Page } from 'playwright'
import { peers } from '../src/measure/peers/peers.ts'
import type { Host } from './host.ts'

/** The page in which the libraries run, and what all its measurements share. */

/** The other libraries, by the page's key. */
export const peerNames = {
  jax: `${peers.jax.name} WebGPU`,
  tfjs: `${peers.tfjs.name} WebGPU`,
  jaxWasm: 'jax-js 0.1.25 wasm (CPU)',
} as const
export type PeerKey = keyof typeof peerNames
export const webgpuPeers = ['jax', 'tfjs'] as const satisfies readonly PeerKey[]

export interface ComputePage {
  page: Page
  devtools: CDPSession
  adapter: string
  software: boolean
}

export type Note = (line: string) => void

/** Opens the page and its device. errors: the page's, such as `gpu.unavailable`. */
export async function openCompute({ browser, url }: Host): Promise<ComputePage> {
  const page = await browser.newPage()
  await page.goto(`${url}page.html`)
  await page.waitForFunction(() => window.bench !== undefined)
  const { facts, isIsolated } = await page.evaluate(() => window.bench.open())
  if (!isIsolated)
    throw new Error('the bench page is not cross-origin isolated: its clock is coarse')
  const devtools = await page.context().newCDPSession(page)
  // CPU time of the thread: time that other processes take does not count.
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' })
  return {
    page,
    devtools,
    adapter: `${facts.vendor} ${facts.architecture}`.trim(),
    software: facts.isSoftware,
  }
}

export const oneLine = (text: string): string => text.trim().split('\n')[0].slice(0, 400)

export const mapValues = <T extends object>(values: T, change: (value: number) => number): T =>
  Object.fromEntries(
    Object.entries(values).map(([key, value]) => [key, change(value as number)]),
  ) as T
