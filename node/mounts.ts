import { createReadStream } from 'node:fs'
import { readdir, realpath, stat } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join, relative, resolve, sep } from 'node:path'
import { pipeline } from 'node:stream'
import { clipped } from '../src/util/clipped.ts'
import { TabringError } from '../src/util/errors.ts'
import { sharedReads } from './shared-reads.ts'

/** Where tabs find the folder that `--data` names: a path on their page's own server. */
export const dataMount = '/data/'

/** By URL prefix, which starts and ends with a slash: a folder with all that is in it but hidden files, or some of its files. */
export type Mounts = Readonly<Record<string, string | MountedFiles>>

/** Files that lie in a folder itself. */
export interface MountedFiles {
  readonly folder: string
  readonly isOffered: (name: string) => boolean
}

/** A listing may be of many files: it is read again this long after its end at the earliest. */
const listingMs = 1000

/**
 * A handler that serves the files of data folders, read-only and as the bytes they are: a `.gz` file stays compressed
 * (sirv would declare it as an encoding and the browser unpack it), nothing outside the folder even by links. One range of bytes
 * is served where it is asked for, so that a download can continue where it ended. Names that begin with a dot are hidden: neither served nor listed.
 *
 * A folder's address, which ends in `/`, is answered with the JSON array of the paths of all files below it. Each mount reads one folder at a
 * time, and no folder but its own where it offers only some files.
 * A path under a prefix that is neither is answered with 404; every other path goes to `next`.
 * errors: `config.invalid` for a prefix of another form.
 */
export function serveMounts(
  mounts: Mounts,
): (request: IncomingMessage, response: ServerResponse, next: () => void) => void {
  for (const prefix of Object.keys(mounts)) {
    if (!/^\/(.*\/)?$/.test(prefix)) {
      throw new TabringError(
        'config.invalid',
        `mounts: expected a prefix that starts and ends with "/", got "${clipped(prefix)}". Write, for example, "/data/".`,
      )
    }
  }
  const offers = Object.entries(mounts).map(([prefix, mount]) => ({
    prefix,
    mount,
    listing: listingsOf(mount),
  }))
  return (request, response, next) => {
    const path = pathOf(request)
    const offer = offers.find(({ prefix }) => path?.startsWith(prefix))
    if (path === null || offer === undefined) {
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
    const answer = async () => {
      const { prefix, mount, listing } = offer
      const name = path.slice(prefix.length)
      if (name === '' || name.endsWith('/')) {
        const body = await listing(name)
        response.writeHead(200, {
          'Content-Type': 'application/json',
          'Content-Length': body.length,
          'Cache-Control': 'no-cache',
        })
        response.end(request.method === 'HEAD' ? undefined : body)
        return
      }
      const file = isServed(mount, name) ? await find(folderOf(mount), name) : null
      if (file) sendFile(request, response, file)
      else refuse(404, `no file ${path}`)
    }
    answer().catch(() => refuse(404, `no file ${path}`))
  }
}

const folderOf = (mount: string | MountedFiles): string =>
  typeof mount === 'string' ? mount : mount.folder

const isServed = (mount: string | MountedFiles, name: string): boolean =>
  typeof mount === 'string' ? !isHidden(name) : mount.isOffered(name)

const isHidden = (path: string): boolean => /(^|[\\/])\./.test(path)

/** Sends the file or the one range of it that the request names, if the file is still the version that `If-Range` names. */
function sendFile(request: IncomingMessage, response: ServerResponse, file: FoundFile): void {
  const { sizeBytes, changedMs, path } = file
  const tag = `"${sizeBytes.toString(16)}-${changedMs.toString(16)}"`
  const headers = {
    'Content-Type': 'application/octet-stream',
    'Cache-Control': 'no-cache',
    'Accept-Ranges': 'bytes',
    ETag: tag,
  }
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '')
  const wanted = request.headers['if-range']
  let start = 0
  let end = sizeBytes - 1
  if (range && (wanted === undefined || wanted === tag)) {
    start = Number(range[1])
    if (range[2]) end = Math.min(end, Number(range[2]))
    if (start > end) {
      response.writeHead(416, { 'Content-Range': `bytes */${sizeBytes}` })
      response.end()
      return
    }
    response.writeHead(206, {
      ...headers,
      'Content-Range': `bytes ${start}-${end}/${sizeBytes}`,
      'Content-Length': end - start + 1,
    })
  } else {
    response.writeHead(200, { ...headers, 'Content-Length': sizeBytes })
  }
  if (request.method === 'HEAD' || sizeBytes === 0) {
    response.end()
    return
  }
  // A read error ends the response short of its length, which the browser reports.
  pipeline(createReadStream(path, { start, end }), response, () => undefined)
}

/** Reads the listings of a mount's folders. errors: rejects where the folder `name` is not offered. */
function listingsOf(mount: string | MountedFiles): (name: string) => Promise<Buffer> {
  const listed = sharedReads((path) => listFiles(path, mount), listingMs)
  return async (name) => {
    const isOffered = typeof mount === 'string' ? !isHidden(name) : name === ''
    // By its real path a folder has one key, whatever name asks for it.
    const path = isOffered ? await inside(folderOf(mount), name) : null
    if (path === null) throw new Error('not offered')
    return listed(path)
  }
}

/** Paths of the files below a folder that the mount offers, in order, as JSON; links are not followed. */
async function listFiles(path: string, mount: string | MountedFiles): Promise<Buffer> {
  const entries = await readdir(path, {
    recursive: typeof mount === 'string',
    withFileTypes: true,
  })
  const names = entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(path, join(entry.parentPath, entry.name)).split(sep).join('/'))
    .filter((name) => isServed(mount, name))
  return Buffer.from(JSON.stringify(names.sort()))
}

/** The decoded path of a request's URL; null when it is garbled. */
function pathOf(request: IncomingMessage): string | null {
  try {
    return decodeURIComponent((request.url ?? '/').split(/[?#]/)[0])
  } catch {
    return null
  }
}

interface FoundFile {
  readonly path: string
  readonly sizeBytes: number
  readonly changedMs: number
}

/** The real path of `name` in `folder`; null where it leads out of it, or to a hidden file. */
async function inside(folder: string, name: string): Promise<string | null> {
  if (name.includes('\0')) return null
  const root = await realpath(resolve(folder))
  const path = await realpath(resolve(root, `.${sep}${name}`))
  const below = root.endsWith(sep) ? root : root + sep
  const isBelow = path.startsWith(below) && !isHidden(path.slice(below.length))
  return path === root || isBelow ? path : null
}

async function find(folder: string, name: string): Promise<FoundFile | null> {
  const path = await inside(folder, name)
  if (path === null) return null
  const found = await stat(path)
  if (!found.isFile()) return null
  return { path, sizeBytes: found.size, changedMs: Math.floor(found.mtimeMs) }
}
