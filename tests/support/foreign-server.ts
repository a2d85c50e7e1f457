import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** What a server of another origin lets pages of any origin do. */
export interface Cors {
  /** Headers that requests may have; without If-Range browsers refuse to ask for the rest of a file. */
  readonly allows: readonly string[]
  /** Headers of answers that pages see, beside those that browsers always show. */
  readonly exposes: readonly string[]
}

/** A server of one file with CORS and ranges, which can stop in the middle of it. */
export class ForeignServer {
  readonly #server = createServer((request, response) => this.#answer(request, response))
  readonly #contents: Buffer
  #halted: ServerResponse | undefined
  cors: Cors = { allows: [], exposes: [] }
  /** Bytes after which the next answer with a body stops, until `breakOff`. */
  haltAfter: number | undefined
  /** The version of the file. */
  tag = '"v1"'
  /** `OPTIONS`, `whole` or the range, as they come in. */
  readonly asked: string[] = []

  constructor(contents: Buffer) {
    this.#contents = contents
  }

  async listen(): Promise<void> {
    this.#server.listen(0, '127.0.0.1')
    await once(this.#server, 'listening')
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/file.bin`
  }

  /** Cuts the connection of the answer that has stopped. */
  breakOff(): void {
    this.#halted?.destroy()
    this.#halted = undefined
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #answer({ method, headers }: IncomingMessage, response: ServerResponse): void {
    response.setHeader('Access-Control-Allow-Origin', '*')
    if (method === 'OPTIONS') {
      this.asked.push(`OPTIONS ${headers['access-control-request-headers']}`)
      response.setHeader('Access-Control-Allow-Headers', this.cors.allows.join(', '))
      response.writeHead(204).end()
      return
    }
    const total = this.#contents.length
    const isSame = headers['if-range'] === undefined || headers['if-range'] === this.tag
    const [, start] = (isSame && /^bytes=(\d+)-$/.exec(headers.range ?? '')) || []
    const from = Number(start ?? 0)
    this.asked.push(headers.range ?? 'whole')
    response.setHeader('Access-Control-Expose-Headers', this.cors.exposes.join(', '))
    response.setHeader('ETag', this.tag)
    response.setHeader('Content-Length', total - from)
    if (start !== undefined)
      response.setHeader('Content-Range', `bytes ${from}-${total - 1}/${total}`)
    response.writeHead(start === undefined ? 200 : 206)
    const halt = this.haltAfter
    this.haltAfter = undefined
    if (halt === undefined) {
      response.end(this.#contents.subarray(from))
      return
    }
    response.write(this.#contents.subarray(from, from + halt))
    this.#halted = response
  }
}
