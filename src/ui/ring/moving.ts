/** What the ring shows while bytes travel: loaded with the first run. */
export { Chunks } from './chunks.tsx'
export { LinkTable } from './link-table.tsx'
