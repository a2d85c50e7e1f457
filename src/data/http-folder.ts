import { DataError, messageOf } from '../util/errors.ts'
import type { FileFolder } from './file-store.ts'
import { addressOf } from './folder.ts'

/**
 * Returns a folder of files behind an address that ends in `/`: GET reads a file, PUT writes one, DELETE removes one, by its name after the
 * address.
 *
 * The server must replace a file only when it has received all bytes; the launcher's does. For a missing file it answers 404, or 204 like
 * the launcher's, which browsers do not report as an error.
 * errors: `data.missing` if a file cannot be read for another reason than not existing; `file.unwritable`.
 */
export function httpFolder(address: string | URL): FileFolder {
  const base = addressOf('httpFolder', 'address', address)
  const ask = async (method: 'GET' | 'PUT' | 'DELETE', name: string, body?: Blob) => {
    const refuse = (got: string, cause?: unknown): DataError =>
      new DataError(
        method === 'GET' ? 'data.missing' : 'file.unwritable',
        `${name}: the server did not accept ${method}: ${/[.]$/.test(got) ? got : `${got}. Check that it is running and has space on its disk.`}`,
        { cause },
      )
    const url = new URL(encodeURIComponent(name), base)
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
