import { createReadStream } from 'node:fs'
import { readdir, realpath, stat } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join, relative, resolve, sep } from 'node:path'
import { pipeline } from 'node:stream'
import { clipped } from '../src/util/clipped.ts'
import { TabringError } from '../src/util/errors.ts'
import { oneAtATime } from '../src/util/next-task.ts'

/** Where tabs find the folder that `--data` names: a path on their page's own server. */
export const dataMount = '/data/'

/** By URL prefix, which starts and ends with a slash: a folder with all that is in it but hidden files, or some of its files. */
export type Mounts = Readonly<Record<string, string | MountedFiles>>

/** Files that lie in a folder itself. */
export interface MountedFiles {
  readonly folder: string
  readonly isOffered: (name: string) => boolean
}

/** What links may add to a listing: folders that link to each other could fill it without end. units: files. */
const maxLinked = 1_000_000

/** A listing may be of many files: it is read again this long after its end at the earliest. */
const listingMs = 1000

/**
 * A handler that serves the files of data folders, read-only and as the bytes they are: a `.gz` file stays compressed
 * (sirv would declare it as an encoding and the browser unpack it). Links are followed within the folder; one that leads nowhere, out of
 * it, to a hidden file or in a circle is left out, which `warn` says once. One range of bytes is served where it is asked for, so that a download
 * can continue where it ended. Names that begin with a dot are hidden: neither served nor listed.
 *
 * A folder's address, which ends in `/`, is answered with the JSON array of the paths of all files below it, and of folders without files,
 * which end in `/`. Each mount reads one folder at a time, and no folder but its own where it offers only some files.
 * A path under a prefix that is neither is answered with 404; every other path goes to `next`.
 * errors: `config.invalid` for a prefix of another form.
 */
export function serveMounts(
  mounts: Mounts,
  warn: (line: string) => void = console.warn,
): (request: IncomingMessage, response: ServerResponse, next: () => void) => void {
  for (const prefix of Object.keys(mounts)) {
    if (!/^\/(.*\/)?$/.test(prefix)) {
      throw new TabringError(
        'config.invalid',
        `mounts: expected a prefix that starts and ends with "/", got "${clipped(prefix)}". Write, for example, "/data/".`,
      )
    }
  }
  const offers = Object.entries(mounts).map(([prefix, mount]) => {
    const sayLeftOut = leftOutLines(prefix, folderOf(mount), warn)
    return { prefix, mount, sayLeftOut, listing: listingsOf(mount, sayLeftOut) }
  })
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
      const { prefix, mount, listing, sayLeftOut } = offer
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
      const file = isServed(mount, name) ? await find(folderOf(mount), name, sayLeftOut) : null
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

/** More paths are not said: strangers can ask for many. */
const maxSaid = 1000

/** Says which paths below a mount are left out, each once. */
function leftOutLines(prefix: string, folder: string, warn: (line: string) => void) {
  const said = new Set<string>()
  return (paths: readonly string[]) => {
    const fresh = said.size < maxSaid ? paths.filter((path) => !said.has(path)) : []
    for (const path of fresh) said.add(path)
    if (fresh.length === 0) return
    const shown = fresh.slice(0, 5).map((path) => clipped(path))
    const more = fresh.length - shown.length
    warn(
      `${prefix}: links that lead nowhere, out of ${folder}, to hidden files or in a circle are left out: ${shown.join(', ')}${more > 0 ? ` and ${more} more` : ''}. Put the files themselves there, or name a folder that holds both.`,
    )
  }
}

/** Reads the listings of a mount's folders. errors: rejects where the folder `name` is not offered. */
function listingsOf(
  mount: string | MountedFiles,
  sayLeftOut: (paths: readonly string[]) => void,
): (name: string) => Promise<Buffer> {
  const listed = sharedReads(async (path) => {
    const { names, leftOut } = await listFiles(path, mount)
    sayLeftOut(leftOut)
    return Buffer.from(JSON.stringify(names))
  }, listingMs)
  return async (name) => {
    const isOffered = typeof mount === 'string' ? !isHidden(name) : name === ''
    // By its real path a folder has one key, whatever name asks for it.
    const path = isOffered ? await inside(folderOf(mount), name) : null
    if (path === null) throw new Error('not offered')
    return listed(path)
  }
}

interface Listed {
  /** In order; those of folders without files end in `/`. */
  readonly names: readonly string[]
  /** Links that are not followed: below the mount's folder. */
  readonly leftOut: readonly string[]
}

/** The paths below the real folder `top` that the mount offers. */
async function listFiles(top: string, mount: string | MountedFiles): Promise<Listed> {
  const root = await realpath(folderOf(mount))
  const files: string[] = []
  const folders: string[] = []
  const leftOut: string[] = []
  let linked = 0
  /** `from`: the real folders in which the links lie that led here. */
  const walk = async (folder: string, prefix: string, from: readonly string[]): Promise<void> => {
    const recursive = typeof mount === 'string'
    for (const entry of await readdir(folder, { recursive, withFileTypes: true })) {
      const path = join(entry.parentPath, entry.name)
      const name = prefix + relative(folder, path).split(sep).join('/')
      if (!isServed(mount, name)) continue
      if (from.length > 0) linked++
      if (entry.isFile()) files.push(name)
      else if (entry.isDirectory()) folders.push(name)
      else if (entry.isSymbolicLink()) {
        const target = await realpath(path).catch(() => undefined)
        const found = await stat(target ?? path).catch(() => undefined)
        const links = [...from, entry.parentPath]
        const isFolder = recursive && found?.isDirectory()
        if (isFolder) folders.push(name)
        const isCircle = isFolder && links.some((link) => isWithin(link, target!))
        if (!target || !isVisible(root, target) || isCircle || linked > maxLinked)
          leftOut.push(path)
        else if (isFolder) await walk(target, `${name}/`, links)
        else if (found?.isFile()) files.push(name)
      }
    }
  }
  await walk(top, '', [])
  const filled = new Set(files.flatMap((name) => foldersOf(name)))
  const empty = folders.filter((name) => !filled.has(name)).map((name) => `${name}/`)
  return {
    names: [...files, ...empty].sort(),
    leftOut: leftOut.map((path) => relative(root, path).split(sep).join('/')).sort(),
  }
}

/** `a` and `a/b` of `a/b/c`. */
const foldersOf = (name: string): string[] =>
  [...name.matchAll(/\//g)].map(({ index }) => name.slice(0, index))

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

/** Whether a real path is a real folder, or is in it. */
const isWithin = (path: string, folder: string): boolean =>
  path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep)

/** Whether a real path is in the real folder `root`, and not hidden there. */
const isVisible = (root: string, path: string): boolean =>
  isWithin(path, root) && !isHidden(path.slice(root.length))

/** The real path of `name` in `folder`; null where it leads out of it, or to a hidden file. */
async function inside(folder: string, name: string): Promise<string | null> {
  if (name.includes('\0')) return null
  const root = await realpath(resolve(folder))
  const path = await realpath(resolve(root, `.${sep}${name}`))
  return isVisible(root, path) ? path : null
}

async function find(
  folder: string,
  name: string,
  sayLeftOut: (paths: readonly string[]) => void,
): Promise<FoundFile | null> {
  const path = await inside(folder, name)
  // Without dots, only a link leads elsewhere.
  if (path === null && name.split('/').every((part) => !/^\.*$/.test(part))) sayLeftOut([name])
  if (path === null) return null
  const found = await stat(path)
  if (!found.isFile()) return null
  return { path, sizeBytes: found.size, changedMs: Math.floor(found.mtimeMs) }
}

/**
 * Returns `read` with a limit: one key is read at a time, and other keys wait for their turn. All who ask for a key that waits, is being
 * read, or was read to its end within the last `keptMs` share one result, or one error.
 */
function sharedReads<Result>(
  read: (key: string) => Promise<Result>,
  keptMs: number,
): (key: string) => Promise<Result> {
  const shared = new Map<string, Promise<Result>>()
  const inTurn = oneAtATime()
  return (key) => {
    const known = shared.get(key)
    if (known) return known
    const result = inTurn(() => read(key))
    shared.set(key, result)
    const forgetLater = () => void setTimeout(() => shared.delete(key), keptMs).unref()
    result.then(forgetLater, forgetLater)
    return result
  }
}
