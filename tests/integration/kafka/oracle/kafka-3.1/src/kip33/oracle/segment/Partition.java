package kip33.oracle.segment;

import java.io.File;
import java.io.IOException;
import kafka.log.LogConfig;
import kafka.log.LogSegment;
import kafka.log.ProducerStateManager;
import kafka.server.LogDirFailureChannel;
import kafka.server.checkpoints.LeaderEpochCheckpointFile;
import kafka.server.epoch.LeaderEpochFileCache;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import scala.Option;
import scala.collection.immutable.Set$;

/** The surroundings recovery needs: fresh producer state and a fresh leader epoch cache. */
final class Partition implements AutoCloseable {
    private static final TopicPartition NAME = new TopicPartition("oracle", 0);
    private static final int PRODUCER_ID_EXPIRATION_MS = 86400000;

    private final SegmentSettings settings;
    private final LogSegment segment;

    Partition(SegmentSettings settings) throws IOException {
        this.settings = settings;
        LogConfig config = new LogConfig(settings.topicConfig(), Set$.MODULE$.empty());
        this.segment = LogSegment.open(
            settings.directory(), settings.baseOffset(), config,
            Time.SYSTEM, true, 0, false, "");
    }

    int recover() throws IOException {
        return segment.recover(producerState(), Option.apply(leaderEpochs()));
    }

    /** Whether the segment has an offset that its index files cannot hold. */
    boolean hasOverflow() {
        return segment.hasOverflow();
    }

    private ProducerStateManager producerState() throws IOException {
        return new ProducerStateManager(
            NAME, settings.directory(), PRODUCER_ID_EXPIRATION_MS, Time.SYSTEM);
    }

    private LeaderEpochFileCache leaderEpochs() throws IOException {
        File checkpoint = LeaderEpochCheckpointFile.newFile(settings.directory());
        if (checkpoint.exists() && !checkpoint.delete())
            throw new IOException("cannot delete " + checkpoint);
        return new LeaderEpochFileCache(
            NAME,
            new LeaderEpochCheckpointFile(checkpoint, new LogDirFailureChannel(1)));
    }

    @Override
    public void close() {
        segment.close();
    }
}
