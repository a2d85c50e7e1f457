/** The page function that takes what a rank computes on and why, in words, when it has opened a device; and a worker's channel for it. */
export const deviceName = '__tabringDevice'

const channels = new Map<string, BroadcastChannel>()

/**
 * Sends a message to the opener of this tab, a launcher or a test, if it listens: by the page function `name`, and from a worker over a channel of that
 * name, on which its page listens in the tab's own browser context alone. Nothing happens where nobody listens.
 */
export function callLauncher(name: string, words: unknown): void {
  const json = JSON.stringify(words)
  const take = (globalThis as Record<string, unknown>)[name]
  if (typeof take === 'function') {
    take(json)
    return
  }
  if ('document' in globalThis || !('WorkerGlobalScope' in globalThis)) return
  let channel = channels.get(name)
  if (!channel) {
    channel = new BroadcastChannel(name)
    channels.set(name, channel)
  }
  channel.postMessage(json)
}
