import type { Plugin, PreviewServer, ViteDevServer } from 'vite'
import { type Mounts, serveMounts } from './mounts.ts'
import { attachSignaling, type SignalServerOptions, type UpgradeServer } from './signal-server.ts'

export interface TabringPluginOptions extends SignalServerOptions {
  /** Folders served read-only, by URL prefix: `{ '/data/': '/home/me/mnist' }`. */
  mounts?: Mounts
}

/** Puts the signaling server (and data folders) on the port of Vite's dev and preview servers. */
export function tabring(options: TabringPluginOptions = {}): Plugin {
  const attach = (server: ViteDevServer | PreviewServer) => {
    if (options.mounts) server.middlewares.use(serveMounts(options.mounts))
    // Null in middleware mode: whoever owns the server attaches signaling to it.
    if (server.httpServer) attachSignaling(server.httpServer as UpgradeServer, options)
  }
  return {
    name: 'tabring',
    configureServer: attach,
    configurePreviewServer: attach,
  }
}
