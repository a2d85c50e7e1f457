import * as v from 'valibot'
import { type ServerFacts, serverFactsPath, serverFactsSchema } from '../../peer/room/messages.ts'

export const noFacts: ServerFacts = { lanUrls: [], asks: false, data: null }

/** What the page's server tells about itself; nothing where it is another server (Vite's, say) than `npm start`. */
export async function readServerFacts(): Promise<ServerFacts> {
  try {
    const response = await fetch(serverFactsPath)
    return v.parse(serverFactsSchema, await response.json())
  } catch {
    return noFacts
  }
}

/** True for a page that other machines cannot open under its own address. */
export function isLocalPage(address: string): boolean {
  return /^https?:\/\/(localhost|127\.|\[::1\])/.test(address)
}

/**
 * The links that let other machines in, best first: this page's own, or one for each address of the machine when the
 * page itself was opened as localhost. Empty when only this machine is served.
 */
export function outsideLinks(invite: string, { lanUrls }: ServerFacts): readonly string[] {
  if (!isLocalPage(invite)) return [invite]
  const { pathname, search, hash } = new URL(invite)
  return lanUrls.map((url) => new URL(`${pathname}${search}${hash}`, url).href)
}
