import { listFolders } from './file-store.ts'

/** Where checkpoints are in the origin private file system. */
export const privateRoot = 'tabring-checkpoints'

/** The names of the folders that there are. */
export const privateCheckpointFolders = (): Promise<string[]> => listFolders(privateRoot)
