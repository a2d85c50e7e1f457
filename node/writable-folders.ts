import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, lstat, open, rename, rm, statfs } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { messageOf } from '../src/util/errors.ts'
import { isTemporary, temporaryPath } from './temporary-files.ts'

/** Folders by URL prefix, which starts and ends with a slash; whoever knows a prefix may write there, until it is taken out. See `secretPrefix`. */
export type WritableFolders = Record<string, string>

/** A prefix that nobody guesses: `/checkpoints-<128 random bits>/`. */
export const secretPrefix = (name: string): string => `/${name}-${randomBytes(16).toString('hex')}/`

/** The largest file that is taken, unless another limit is given. units: bytes. */
export const defaultMaxFileBytes = 16 * 2 ** 30

export interface WritableOptions {
  /** Default 16 GiB. */
  maxFileBytes?: number
}

/** No folders, nothing hidden. */
const plainName = /^[\w-][\w.-]{0,200}$/

/** How long the rest of a request that was refused is read, so that its sender gets to see the answer. units: ms. */
const lingerMs = 5_000

/** What a request is answered with. */
class Refused extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text)
  }
}

/** Answers to what the disk says, besides 500. */
const statusOf: Record<string, number> = { EDQUOT: 507, ENOSPC: 507 }

/**
 * A handler that reads, writes and removes single files of folders: GET, PUT, DELETE. Other paths go to `next`.
 *
 * A file is put in place when all of its bytes are on the disk, in one move; one that is cut short, too large, or whose prefix is taken out on
 * the way, leaves the file before it as it was. Nothing outside of a folder is read or written: symbolic links are refused (DELETE takes the
 * link itself away). GET of a file that is not there is answered by 204. Other statuses besides 200: 403 for what is no plain file, 404 for what is no name, 405, 410, 413, 507 where the disk is full.
 */
export function serveWritable(
  folders: WritableFolders,
  { maxFileBytes = defaultMaxFileBytes }: WritableOptions = {},
): (request: IncomingMessage, response: ServerResponse, next: () => void) => void {
  return (request, response, next) => {
    const path = (request.url ?? '/').split(/[?#]/)[0]
    const prefix = Object.keys(folders).find((one) => path.startsWith(one))
    if (prefix === undefined) {
      next()
      return
    }
    const answer = (status: number, text = '') => {
      if (response.headersSent || response.destroyed) return
      response.writeHead(status, { 'Content-Type': 'text/plain; charset=utf-8' })
      response.end(text)
    }
    const name = path.slice(prefix.length)
    if (!plainName.test(name) || isTemporary(name)) {
      answer(404, 'no such file')
      return
    }
    const file = join(folders[prefix], name)
    const act = { GET: send, PUT: receive, DELETE: remove }[request.method ?? '']
    if (!act) {
      answer(405, 'GET, PUT or DELETE')
      return
    }
    const isOffered = () => Object.hasOwn(folders, prefix)
    act({ file, name, request, response, isOffered, maxFileBytes }).then(
      (status) => status && answer(status),
      (thrown) => {
        const { code = '' } = thrown as NodeJS.ErrnoException
        // Not 404: browsers print that as an error, and a first start finds nothing.
        if (code === 'ENOENT' && request.method === 'GET') answer(204)
        else if (thrown instanceof Refused) answer(thrown.status, thrown.message)
        else answer(statusOf[code] ?? 500, messageOf(thrown))
        if (!request.complete) endSoon(request)
      },
    )
  }
}

/** An answer's status, where it has not been sent already. */
type Act = (asked: {
  file: string
  name: string
  request: IncomingMessage
  response: ServerResponse
  /** Whether the prefix is one still. */
  isOffered: () => boolean
  maxFileBytes: number
}) => Promise<number | undefined>

const send: Act = async ({ file, name, response }) => {
  const handle = await openPlain(file, name)
  try {
    // Of what was opened, whatever lies there by now.
    const { size } = await handle.stat()
    response.writeHead(200, {
      'Content-Type': 'application/octet-stream',
      'Content-Length': size,
      'Cache-Control': 'no-store',
    })
    if (size === 0) response.end()
    else await pipeline(handle.createReadStream({ end: size - 1, autoClose: false }), response)
  } finally {
    await handle.close()
  }
  return undefined
}

const receive: Act = async ({ file, name, request, isOffered, maxFileBytes }) => {
  const tooLarge = () =>
    new Refused(413, `${name} has more than ${maxFileBytes} bytes. Save a smaller file.`)
  const announced = Number(request.headers['content-length'] ?? 0)
  if (announced > maxFileBytes) throw tooLarge()
  const { bavail, bsize } = await statfs(dirname(file))
  if (announced > bavail * bsize) {
    throw new Refused(
      507,
      `${name} needs ${announced} bytes, but the disk has ${bavail * bsize}. Free some space, or name another folder.`,
    )
  }
  await refuseOther(file, name)
  const temporary = temporaryPath(file)
  try {
    const handle = await open(temporary, 'wx')
    try {
      let sizeBytes = 0
      // A request that breaks off rejects here.
      await handle.writeFile(
        (async function* () {
          for await (const chunk of request.iterator({ destroyOnReturn: false })) {
            sizeBytes += chunk.length
            if (sizeBytes > maxFileBytes) throw tooLarge()
            yield chunk
          }
        })(),
      )
      await handle.sync()
    } finally {
      await handle.close()
    }
    if (!isOffered()) return 410
    await rename(temporary, file)
  } finally {
    await rm(temporary, { force: true })
  }
  return 204
}

const remove: Act = async ({ file }) => {
  await rm(file, { force: true })
  return 204
}

/** Opens a file for reading, once, without following a link that it is. errors: `Refused`; the disk's. */
async function openPlain(file: string, name: string): Promise<FileHandle> {
  // Windows has no such flag.
  if (constants.O_NOFOLLOW === undefined) await refuseOther(file, name)
  let handle: FileHandle
  try {
    // Without O_NONBLOCK opening a named pipe would wait for its writer.
    const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants
    handle = await open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ELOOP')
      throw noPlainFile(name, 'a symbolic link')
    throw thrown
  }
  if ((await handle.stat()).isFile()) return handle
  await handle.close()
  throw noPlainFile(name, 'something else')
}

/** errors: `Refused` for what is there and is no plain file. */
async function refuseOther(file: string, name: string): Promise<void> {
  const found = await lstat(file).catch((thrown: NodeJS.ErrnoException) => {
    if (thrown.code === 'ENOENT') return undefined
    throw thrown
  })
  if (found && !found.isFile())
    throw noPlainFile(name, found.isSymbolicLink() ? 'a symbolic link' : 'something else')
}

const noPlainFile = (name: string, got: string) =>
  new Refused(
    403,
    `expected ${name} to be a plain file in the folder, got ${got}. Put the file itself there.`,
  )

/** Reads what still comes, for a while, and then ends the connection. */
function endSoon(request: IncomingMessage): void {
  const timer = setTimeout(() => request.destroy(), lingerMs)
  request.once('close', () => clearTimeout(timer))
  request.resume()
}
