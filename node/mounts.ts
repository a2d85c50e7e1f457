import { createReadStream } from 'node:fs'
import { realpath, stat } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { resolve, sep } from 'node:path'
import { pipeline } from 'node:stream'

/** Folders by URL prefix, which starts and ends with a slash. */
export type Mounts = Record<string, string>

/**
 * A handler that serves the files of data folders, read-only and as the bytes they are: a `.gz` file stays compressed
 * (sirv would declare it as an encoding and the browser unpack it), no listing, nothing outside the folder even by links.
 * A path under a prefix that is no file is answered with 404; every other path goes to `next`.
 */
export function serveMounts(
  mounts: Mounts,
): (request: IncomingMessage, response: ServerResponse, next: () => void) => void {
  for (const prefix of Object.keys(mounts)) {
    if (!/^\/(.*\/)?$/.test(prefix)) {
      throw new Error(`mounts: expected a prefix that starts and ends with "/", got "${prefix}".`)
    }
  }
  return (request, response, next) => {
    const path = pathOf(request)
    const prefix = Object.keys(mounts).find((one) => path?.startsWith(one))
    if (path === null || prefix === undefined) {
      next()
      return
    }
    const refuse = (status: number, text: string) => {
      response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' })
      response.end(`${text}\n`)
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      refuse(405, 'read-only')
      return
    }
    find(mounts[prefix], path.slice(prefix.length)).then(
      (file) => {
        if (!file) {
          refuse(404, `no file ${path}`)
          return
        }
        response.writeHead(200, {
          'Content-Type': 'application/octet-stream',
          'Content-Length': file.sizeBytes,
          'Cache-Control': 'no-cache',
        })
        if (request.method === 'HEAD') {
          response.end()
          return
        }
        // A read error ends the response short of its length, which the browser reports.
        pipeline(createReadStream(file.path), response, () => undefined)
      },
      () => refuse(404, `no file ${path}`),
    )
  }
}

/** The decoded path of a request's URL; null when it is garbled. */
function pathOf(request: IncomingMessage): string | null {
  try {
    return decodeURIComponent((request.url ?? '/').split(/[?#]/)[0])
  } catch {
    return null
  }
}

async function find(
  folder: string,
  name: string,
): Promise<{ path: string; sizeBytes: number } | null> {
  if (name.includes('\0')) return null
  const root = await realpath(resolve(folder))
  const path = await realpath(resolve(root, `.${sep}${name}`))
  if (!path.startsWith(root.endsWith(sep) ? root : root + sep)) return null
  const found = await stat(path)
  return found.isFile() ? { path, sizeBytes: found.size } : null
}
