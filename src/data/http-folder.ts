import { DataError, messageOf } from '../util/errors.ts'
import type { FileFolder } from './file-store.ts'

/**
 * Files behind an address that ends in `/`: GET reads one, PUT writes one, DELETE removes one, by its name after the address.
 *
 * The server is to put a file in place only when it has all of its bytes; the launcher's own does. For a file that is not there it answers
 * 404, or 204 as the launcher's, which browsers do not report as an error.
 * errors: `data.missing` where a file cannot be read for another reason than that it is not there; `file.unwritable`.
 */
export function httpFolder(address: string | URL): FileFolder {
  const ask = async (method: 'GET' | 'PUT' | 'DELETE', name: string, body?: Blob) => {
    const refuse = (got: string, cause?: unknown): DataError =>
      new DataError(
        method === 'GET' ? 'data.missing' : 'file.unwritable',
        `${name}: expected the server to take ${method}, got ${got}. Check that it runs, and the room on its disk.`,
        { cause },
      )
    const url = new URL(encodeURIComponent(name), address)
    let answer: Response
    try {
      answer = await fetch(url, { method, body, cache: 'no-store' })
    } catch (thrown) {
      throw refuse(messageOf(thrown), thrown)
    }
    const isMissing = answer.status === 404 || (answer.status === 204 && method === 'GET')
    if (isMissing && method !== 'PUT') return undefined
    if (!answer.ok) throw refuse(`${answer.status} ${(await answer.text()).trim().slice(0, 200)}`)
    return answer
  }
  return {
    read: async (name) => (await ask('GET', name))?.blob(),
    write: async (name, contents) => {
      await ask('PUT', name, contents)
    },
    remove: async (name) => {
      await ask('DELETE', name)
    },
  }
}
