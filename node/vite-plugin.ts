import type { Plugin, PreviewServer, ViteDevServer } from 'vite'
import { TabringError } from '../src/util/errors.ts'
import { quoted } from '../src/util/kind-of.ts'
import { checkFlag, checkNumber, checkOptions, isCount } from '../src/util/options.ts'
import { isolationHeaders } from './headers.ts'
import { iceSource } from './ice/ice-source.ts'
import { serveMounts } from './mounts.ts'
import { attachSignaling, type UpgradeServer } from './signal-server.ts'

// Written out, not derived from the signaling server's options: a user's compiler reads this with only the package's files.
/** Options of the Vite plugin. */
export interface TabringPluginOptions {
  /** Folders to serve read-only, by URL prefix: `{ '/data/': '/home/me/mnist' }`. The address of a folder returns the list of its files. */
  mounts?: Readonly<Record<string, string>>
  /** Whether pages are cross-origin isolated, for clocks of 5 µs instead of 100 µs. False lets a page embed content of other origins. Default true. */
  crossOriginIsolated?: boolean
  /** Other origins whose pages may use the signaling server, exactly as browsers write them: `https://example.org:8443`. */
  allowedOrigins?: readonly string[]
  /** Other names of this machine, in addition to localhost, numeric addresses, and the names that it knows itself. */
  hosts?: readonly string[]
  /** Whether tabs may send their data through the signaling server, encrypted end to end, where WebRTC is blocked. Default false. */
  relay?: boolean
  /** Most open signaling sockets of one IP address. Default 256, or 768 with the relay. */
  maxConnectionsPerIp?: number
  /** Most open signaling sockets in all. Default 2,000. */
  maxConnections?: number
  /**
   * STUN and TURN servers for the tabs. Default: none. A TURN server without a login uses `turnSecret`, which stays on this server: each tab gets
   * credentials that are derived from it and expire after `turnLifetimeMs`, by default 10 minutes.
   */
  ice?: {
    iceServers: readonly {
      urls: string | readonly string[]
      username?: string
      credential?: string
    }[]
    turnSecret?: string
    turnLifetimeMs?: number
  }
  /** Called with one line for each refused socket. Default: no logging. */
  log?: (line: string) => void
}

/**
 * Returns the plugin that a Vite project needs to train with Tabring: `plugins: [tabring()]`.
 *
 * It adds the signaling server to Vite's dev and preview servers, on their port, serves data folders, and configures Vite so that the library
 * finds its workers.
 * errors: `config.invalid` for an unknown option or an invalid value.
 */
export function tabring(options: TabringPluginOptions = {}): Plugin {
  check(options)
  const { mounts, crossOriginIsolated = true, ...signaling } = options
  const mounted = mounts && serveMounts(mounts)
  const attach = (server: ViteDevServer | PreviewServer) => {
    if (mounted) server.middlewares.use(mounted)
    // Null in middleware mode: whoever owns the server attaches signaling to it.
    if (server.httpServer) attachSignaling(server.httpServer as UpgradeServer, signaling)
  }
  return {
    name: 'tabring',
    config: ({ server, preview, worker }) => ({
      // What is bundled in advance lies apart from the library's worker files.
      optimizeDeps: { exclude: ['tabring'] },
      // Workers that import the library load parts of it late, which the other format cannot.
      worker: { format: worker?.format ?? 'es' },
      ...(crossOriginIsolated && {
        server: { headers: { ...isolationHeaders, ...server?.headers } },
        preview: { headers: { ...isolationHeaders, ...(preview?.headers ?? server?.headers) } },
      }),
    }),
    configureServer: attach,
    configurePreviewServer: attach,
  }
}

const where = 'tabring'

function check(options: TabringPluginOptions): void {
  checkOptions(where, options, {
    mounts: true,
    crossOriginIsolated: true,
    allowedOrigins: true,
    hosts: true,
    relay: true,
    maxConnectionsPerIp: true,
    maxConnections: true,
    ice: true,
    log: true,
  })
  checkFlag(where, 'crossOriginIsolated', options.crossOriginIsolated)
  if (options.ice !== undefined) iceSource(`${where}: ice`, options.ice)
  checkFlag(where, 'relay', options.relay)
  for (const name of ['maxConnectionsPerIp', 'maxConnections'] as const) {
    checkNumber(where, name, options[name], isCount, 'a whole number above 0')
  }
  checkNames('hosts', options.hosts, 'names like "train.example.org"', (host) =>
    /^[^\s/:]+$/.test(host),
  )
  checkNames(
    'allowedOrigins',
    options.allowedOrigins,
    'origins like "https://example.org:8443"',
    (origin) => URL.canParse(origin) && new URL(origin).origin === origin,
  )
}

function checkNames(
  name: string,
  values: readonly string[] | undefined,
  expected: string,
  isValid: (value: string) => boolean,
): void {
  if (values === undefined) return
  const wrong = Array.isArray(values)
    ? values.find((value) => typeof value !== 'string' || !isValid(value))
    : values
  if (wrong === undefined) return
  throw new TabringError(
    'config.invalid',
    `${where}: ${name} must be a list of ${expected}, got ${quoted(wrong)}. Correct it.`,
  )
}
