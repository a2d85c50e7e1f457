import { runThread, type ThreadStart } from './thread.ts'

addEventListener('message', ({ data }: MessageEvent<ThreadStart>) => runThread(data))
