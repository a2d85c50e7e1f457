import * as v from 'valibot'
import { type ServerFacts, serverFactsPath, serverFactsSchema } from '../../peer/room/messages.ts'

/** From a failed read until the next: this long at first, then twice as long each time. units: ms. */
const retryMs = { first: 500, max: 4_000 }

/** Reads the facts that the page's server gives about itself; null for a server without them, such as Vite's. */
export async function readServerFacts(): Promise<ServerFacts | null> {
  for (let waitMs = retryMs.first; ; waitMs *= 2) {
    try {
      const response = await fetch(serverFactsPath)
      return v.parse(serverFactsSchema, await response.json())
    } catch {
      if (waitMs > retryMs.max) return null
      await new Promise((resolve) => setTimeout(resolve, waitMs))
    }
  }
}

/** True for a page that other machines cannot open under its own address. */
export function isLocalPage(address: string): boolean {
  return /^https?:\/\/(localhost|127\.|\[::1\])/.test(address)
}

/**
 * The links that let other machines in, best first: this page's own, or one for each address of the machine when the
 * page itself was opened as localhost. Empty when only this machine is served, or while the server has not answered.
 */
export function outsideLinks(invite: string, server: ServerFacts | null): readonly string[] {
  if (!isLocalPage(invite)) return [invite]
  const { pathname, search, hash } = new URL(invite)
  const lanUrls = server?.lanUrls ?? []
  return lanUrls.map((url) => new URL(`${pathname}${search}${hash}`, url).href)
}
