import { randomBytes } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open, rename, rm, stat } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { messageOf } from '../src/util/errors.ts'

/** Folders by URL prefix, which starts and ends with a slash; whoever knows a prefix may write there, until it is taken out. See `secretPrefix`. */
export type WritableFolders = Record<string, string>

/** A prefix that nobody guesses: `/checkpoints-<128 random bits>/`. */
export const secretPrefix = (name: string): string => `/${name}-${randomBytes(16).toString('hex')}/`

/** No folders, nothing hidden. */
const plainName = /^[\w-][\w.-]{0,200}$/

/**
 * A handler that reads, writes and removes single files of folders: GET, PUT, DELETE. Other paths go to `next`.
 *
 * A file is put in place when all of its bytes are on the disk, in one move; one that is cut short, or whose prefix is taken out on the way,
 * leaves the file before it as it was.
 */
export function serveWritable(
  folders: WritableFolders,
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
    if (!plainName.test(name)) {
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
    act({ file, request, response, isOffered }).then(
      (status) => status && answer(status),
      (thrown) => {
        const isMissing = (thrown as NodeJS.ErrnoException).code === 'ENOENT'
        if (isMissing && request.method === 'GET') answer(404, 'no such file')
        else answer(500, messageOf(thrown))
      },
    )
  }
}

/** An answer's status, where it has not been sent already. */
type Act = (asked: {
  file: string
  request: IncomingMessage
  response: ServerResponse
  /** Whether the prefix is one still. */
  isOffered: () => boolean
}) => Promise<number | undefined>

const send: Act = async ({ file, response }) => {
  const { size } = await stat(file)
  response.writeHead(200, {
    'Content-Type': 'application/octet-stream',
    'Content-Length': size,
    'Cache-Control': 'no-store',
  })
  await pipeline(createReadStream(file), response)
  return undefined
}

const receive: Act = async ({ file, request, isOffered }) => {
  const temporary = `${file}.${randomBytes(4).toString('hex')}.tmp`
  try {
    const handle = await open(temporary, 'wx')
    try {
      // A request that breaks off rejects here.
      await handle.writeFile(request)
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
