import type { Server } from 'node:http'
import { createServer as createTcp } from 'node:net'
import { messageOf, TabringError } from '../src/util/errors.ts'

/**
 * Listens on the first free port of `wanted` to `last`, and returns it; 0 takes any. `address` undefined: all addresses of the machine.
 *
 * errors: `config.invalid` when all are in use, or the address is not this machine's.
 */
export async function listen(
  server: Server,
  { wanted, last = wanted, address }: { wanted: number; last?: number; address?: string },
): Promise<number> {
  for (let port = wanted; port <= last; port++) {
    // A server on ::1 alone would get what a browser sends to "localhost", although 127.0.0.1 is free.
    if (address === '127.0.0.1' && port !== 0 && (await isTaken(port, '::1'))) continue
    const failure = await new Promise<NodeJS.ErrnoException | null>((resolve) => {
      const onError = (error: NodeJS.ErrnoException) => resolve(error)
      server.once('error', onError)
      server.listen(port, address, () => {
        server.off('error', onError)
        resolve(null)
      })
    })
    if (!failure) {
      const bound = server.address()
      return bound !== null && typeof bound === 'object' ? bound.port : port
    }
    if (failure.code !== 'EADDRINUSE') {
      throw new TabringError(
        'config.invalid',
        `serve: cannot listen on ${address ?? 'all addresses'}, port ${port}: ${messageOf(failure)}. Use another --host or --port.`,
      )
    }
  }
  const tried = wanted === last ? `port ${wanted} is` : `ports ${wanted} to ${last} are`
  throw new PortTaken(`serve: ${tried} in use. Choose another --port.`)
}

/** Every port that was tried is in use. */
export class PortTaken extends TabringError {
  constructor(message: string) {
    super('config.invalid', message)
  }
}

async function isTaken(port: number, address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createTcp()
    probe.once('error', (error: NodeJS.ErrnoException) => resolve(error.code === 'EADDRINUSE'))
    probe.listen(port, address, () => probe.close(() => resolve(false)))
  })
}
